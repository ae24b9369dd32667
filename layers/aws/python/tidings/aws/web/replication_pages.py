"""
Pages and rows for feeds that copy one of ours, as an ASGI app: `GET /feeds/{feed}/pages`, `/rows`.

A reply without pages waits for news, as long as the caller would (PROTOCOL 16).
"""

from __future__ import annotations

import asyncio
import gzip
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs

from tidings.aws.gateway.http_events import WrongMethod, headers_for, preflight_headers, refusal_of
from tidings.aws.web.stream import (
    Message,
    Receive,
    Send,
    disconnected,
    headers_of,
    in_thread,
    send_head,
)
from tidings.aws.web.tail_poller import POLL_S, TailPoller
from tidings.core.auth.guard import credential_from
from tidings.core.auth.permissions import COPIES
from tidings.core.errors import TidingsError
from tidings.core.model.feeds import check_known
from tidings.core.replication import serve
from tidings.core.replication.wire import Portion, tell, tell_rows

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from tidings.aws.web.changes_list import App
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.replication.serve import PagesAsked, Portioner, Query, RowsAsked

Asked = TypeVar("Asked", "PagesAsked", "RowsAsked")
PATHS = re.compile(r"/feeds/(?P<feed>[^/]+)/(?P<what>pages|rows)")
KIND = "application/x-ndjson; charset=utf-8"
PACKED_BYTES_MIN = 1024  # of a reply that is packed: below, it would travel no faster
_PACKING = 1  # level of gzip: five times as fast as the usual one, for an eighth more bytes


class Portions:
    """The app; what it does not serve is for *others*. The rest is built for the first caller."""

    def __init__(
        self,
        portioner: Callable[[], Portioner],
        guard: Callable[[], Guard],
        feeds: frozenset[str],
        origins: tuple[str, ...],
        others: App,
    ) -> None:
        self._portioner, self._guard, self._feeds = portioner, guard, feeds
        self._origins, self._others = origins, others
        self._pollers: dict[tuple[str, bool], TailPoller] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        found = PATHS.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._others(scope, receive, send)
            return
        headers = headers_of(scope)
        if scope["method"] == "OPTIONS":
            allowed = preflight_headers(headers.get("origin", ""), self._origins, ["GET"])
            await self._answer(send, headers, 204, allowed, "")
            return
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            text = await self._text(scope, headers, found, gone)
            await self._answer(send, headers, 200, {"content-type": KIND}, text)
        except TidingsError as error:
            refusal = refusal_of(error)
            await self._answer(send, headers, refusal.status, refusal.headers, refusal.body)
        finally:
            gone.cancel()

    async def _text(
        self, scope: Message, headers: dict[str, str], found: re.Match[str], gone: Future[None]
    ) -> str:
        came_s = asyncio.get_running_loop().time()
        if scope["method"] != "GET":
            raise WrongMethod(scope["method"], "GET, OPTIONS")
        feed, allowed = await in_thread(self._admit, found["feed"], headers)
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if found["what"] == "rows":
            return await in_thread(self._rows, feed, query, allowed)
        asked = narrowed(serve.parse_pages(query), allowed)
        return await self._pages(feed, asked, gone, came_s)

    def _admit(self, name: str, headers: dict[str, str]) -> tuple[str, Allowed]:
        feed = check_known(name, self._feeds)
        given = credential_from(headers.get("authorization"))
        return feed, COPIES.admit(self._guard(), feed, given)

    def _rows(self, feed: str, query: Query, allowed: Allowed) -> str:
        asked = narrowed(serve.parse_rows(query), allowed)
        self._guard().check_leave(feed, asked.selection.filter)
        return tell_rows(
            self._portioner().rows(feed, asked.bucket, asked.after, asked.selection),
        )

    async def _pages(self, feed: str, asked: PagesAsked, gone: Future[None], came_s: float) -> str:
        """What there is, or what comes while the caller waits, who came at *came_s*."""
        await in_thread(self._guard().check_leave, feed, asked.selection.filter)
        read = partial(in_thread, self._look, feed, asked)
        now_s, until_s = asyncio.get_running_loop().time, came_s + asked.block_s
        portion: Portion = await read()
        while _is_empty(portion) and not gone.done() and now_s() < until_s:
            end = min(asked.after.page, portion.standing.head)  # it may be ahead of us
            await self._poller(feed, asked).wait(end, gone, until_s - now_s())
            portion = await read()
            if _is_empty(portion):  # what came is not behind it, or is not told yet
                await asyncio.wait({gone}, timeout=min(POLL_S, max(0, until_s - now_s())))
        return await in_thread(tell, portion)

    def _look(self, feed: str, asked: PagesAsked) -> Portion:
        return self._portioner().pages(feed, asked.after, asked.selection, asked.size)

    def _poller(self, feed: str, asked: PagesAsked) -> TailPoller:
        """The one of the feed; where it must be known what left, the end is another."""
        key = (feed, asked.selection.filter.leave)
        if key not in self._pollers:
            read = partial(self._portioner().catch_up.read, feed, leave=key[1])
            self._pollers[key] = TailPoller(read)
        return self._pollers[key]

    async def _answer(
        self, send: Send, asked: dict[str, str], status: int, answer: dict[str, str], text: str
    ) -> None:
        headers = {**headers_for(asked.get("origin", ""), self._origins), **answer}
        body = text.encode()
        if len(body) >= PACKED_BYTES_MIN and "gzip" in asked.get("accept-encoding", "").lower():
            body = await in_thread(partial(gzip.compress, body, _PACKING, mtime=0))
            headers["content-encoding"] = "gzip"
        headers["content-length"] = str(len(body))
        await send_head(send, status, headers)
        await send({"type": "http.response.body", "body": body, "more_body": False})


def narrowed(asked: Asked, allowed: Allowed) -> Asked:
    """*asked* of what is allowed."""
    selection = asked.selection
    return replace(asked, selection=replace(selection, filter=allowed.narrowed(selection.filter)))


def _is_empty(portion: Portion) -> bool:
    return not portion.pages and not portion.pending
