"""
Pages and rows for chained feeds, as an ASGI app: `GET /feeds/{feed}/pages`, `/rows`.

A response without pages waits for news as long as the caller requests (PROTOCOL 16).
"""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidings.core.auth.guard import REPLICATE, credential_from
from tidings.core.errors import TidingsError
from tidings.core.model.feeds import check_known
from tidings.core.replication import serve
from tidings.core.replication.wire import ReplicationBatch, encode_batch, encode_rows
from tidings.http import caching
from tidings.http.answers import headers_for, refusal
from tidings.http.asgi import (
    Message,
    Receive,
    Send,
    disconnected,
    headers_of,
    in_thread,
    preflight,
    query_of,
    send_head,
)
from tidings.http.request import Answer
from tidings.http.router import WrongMethod
from tidings.http.streams.tail_poller import POLL_S, Listen, TailPoller, at_a_pace
from tidings.http.streams.waiting import COPIED

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.replication.serve import PagesRequest, Query, ReplicationReader, RowsRequest

Asked = TypeVar("Asked", "PagesRequest", "RowsRequest")
KIND = "application/x-ndjson; charset=utf-8"
PACKED_BYTES_MIN = 1024  # of a compressed response: smaller ones would not be faster
_PACKING = 1  # level of gzip: five times as fast as the default, for an eighth more bytes


class ReplicationApp:
    """The app. *replication_reader* and *guard* are built for the first request."""

    def __init__(
        self,
        replication_reader: Callable[[], ReplicationReader],
        guard: Callable[[], Guard],
        feeds: frozenset[str],
        origins: tuple[str, ...],
        listen: Listen = at_a_pace,
    ) -> None:
        self._listen = listen
        self._portioner, self._guard, self._feeds = replication_reader, guard, feeds
        self._origins = origins
        self._pollers: dict[tuple[str, bool], TailPoller] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        answer = await self._answer(scope, headers, receive)
        await send_packed(send, answer, headers, self._origins)

    async def _answer(self, scope: Message, headers: dict[str, str], receive: Receive) -> Answer:
        if scope["method"] == "OPTIONS":
            return preflight(headers, self._origins, "GET")
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            return await self._found(scope, headers, gone)
        except TidingsError as error:
            return refusal(error)
        finally:
            gone.cancel()

    async def _found(self, scope: Message, headers: dict[str, str], gone: Future[None]) -> Answer:
        came_s = asyncio.get_running_loop().time()
        if scope["method"] != "GET":
            raise WrongMethod(scope["method"], "GET, OPTIONS")
        match = COPIED.fullmatch(scope["path"])
        assert match is not None  # other paths are not routed here
        feed, allowed = await in_thread(self._admit, match["feed"], headers)
        query = query_of(scope)
        if match["what"] == "rows":
            text = await in_thread(self._rows, feed, query, allowed)
            return Answer(200, {"content-type": KIND}, text)
        requested = narrowed(serve.parse_pages_request(query), allowed)
        await in_thread(self._guard().check_leave, feed, requested.selection.filter)
        read = partial(in_thread, self._look, feed, requested)
        first: ReplicationBatch = await read()
        batch = await self._awaited(feed, requested, first, read, gone, came_s)
        shared = caching.sharing(allowed, waits=requested.block_s > 0, full=batch.is_full)
        if batch is not first:
            if shared:  # clients with other credentials may receive it: check again
                await in_thread(self._admit, feed, headers)
            else:  # a key with a rate, whose request must count only once
                waited_s = asyncio.get_running_loop().time() - came_s
                await in_thread(self._check_held, feed, allowed, waited_s)
        text = await in_thread(encode_batch, batch)
        return Answer(200, {"content-type": KIND, **shared}, text)

    def _admit(self, name: str, headers: dict[str, str]) -> tuple[str, Allowed]:
        feed = check_known(name, self._feeds)
        given = credential_from(headers.get("authorization"))
        return feed, REPLICATE.admit(self._guard(), feed, given)

    def _check_held(self, feed: str, allowed: Allowed, waited_s: float) -> None:
        now_ms = self._portioner().catch_up.reader.clock()
        since_ms = now_ms - round(waited_s * 1000)
        self._guard().check_held(feed, allowed.admission, since_ms, now_ms)

    def _rows(self, feed: str, query: Query, allowed: Allowed) -> str:
        requested = narrowed(serve.parse_rows_request(query), allowed)
        self._guard().check_leave(feed, requested.selection.filter)
        return encode_rows(
            self._portioner().rows(feed, requested.bucket, requested.after, requested.selection),
        )

    async def _awaited(
        self,
        feed: str,
        requested: PagesRequest,
        batch: ReplicationBatch,
        read: Callable[[], Awaitable[ReplicationBatch]],
        gone: Future[None],
        came_s: float,
    ) -> ReplicationBatch:
        """
        Return *batch*, or the next one that arrives while the caller waits; it arrived at *came_s*.
        """
        now_s, until_s = asyncio.get_running_loop().time, came_s + requested.block_s
        while _is_empty(batch) and not gone.done() and now_s() < until_s:
            end = min(requested.after.page, batch.standing.head)  # the caller may be ahead of us
            await self._poller(feed, requested).wait(end, gone, until_s - now_s())
            batch = await read()
            if _is_empty(batch):  # the news is not after its position, or not readable yet
                await asyncio.wait({gone}, timeout=min(POLL_S, max(0, until_s - now_s())))
        return batch

    def _look(self, feed: str, requested: PagesRequest) -> ReplicationBatch:
        return self._portioner().pages(feed, requested.after, requested.selection, requested.size)

    def _poller(self, feed: str, requested: PagesRequest) -> TailPoller:
        """
        Return the poller of the feed; requests with leaves have a different frontier and poller.
        """
        key = (feed, requested.selection.filter.leave)
        if key not in self._pollers:
            read = partial(self._portioner().catch_up.read, feed, leave=key[1])
            self._pollers[key] = TailPoller(read, self._listen(feed))
        return self._pollers[key]


async def send_packed(
    send: Send, answer: Answer, request_headers: Mapping[str, str], origins: Sequence[str]
) -> None:
    """Send *answer*, compressed if that pays off and the client accepts gzip."""
    headers = {**headers_for(request_headers.get("origin", ""), origins), **answer.headers}
    body = answer.body.encode()
    if (
        len(body) >= PACKED_BYTES_MIN
        and "gzip" in request_headers.get("accept-encoding", "").lower()
    ):
        body = await in_thread(partial(gzip.compress, body, _PACKING, mtime=0))
        headers["content-encoding"] = "gzip"
    headers["content-length"] = str(len(body))
    await send_head(send, answer.status, headers)
    await send({"type": "http.response.body", "body": body, "more_body": False})


def narrowed(requested: Asked, allowed: Allowed) -> Asked:
    """Return *requested*, restricted to the data in *allowed*."""
    selection = requested.selection
    return replace(
        requested, selection=replace(selection, filter=allowed.narrowed(selection.filter))
    )


def _is_empty(batch: ReplicationBatch) -> bool:
    return not (batch.pages or batch.pending or batch.standing.ended)
