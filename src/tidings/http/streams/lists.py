"""Serve lists that wait for new entries: changes, and pages and rows for chained feeds.

`GET /changes` and `/changes/{id}`, also below `/feeds/{feed}`, answer as changeagent did. A relay
reads `GET /feeds/{feed}/pages` and `/rows` (PROTOCOL 16). If there are no entries, the response
waits for new entries as long as the client requests. All waiting clients of a feed share one reader
of the end of the log, as event streams do. `answers.sharing` decides which responses a cache may
share.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidings.core import limits
from tidings.core.auth.guard import READ, REPLICATE, credential_from
from tidings.core.auth.quotas import free
from tidings.core.changeagent.changes import ID_MAX
from tidings.core.changeagent.list import Listing, Query, extend_listing, parse
from tidings.core.errors import InvalidChange, TidingsError, parse_integer
from tidings.core.maintenance.clients import LONG_POLL, Client, OpenRequests, user_agent_of
from tidings.core.model.feeds import DEFAULT_FEED, public_name
from tidings.core.replication import serve
from tidings.core.replication.wire import ReplicationBatch, encode_batch, encode_rows
from tidings.http.answers import JSON, changeagent_answer, refusal, sharing, with_headers
from tidings.http.asgi import (
    Message,
    Receive,
    Send,
    headers_of,
    in_thread,
    preflight,
    query_of,
    send_answer,
    send_response,
    wait_for_disconnect,
)
from tidings.http.request import Answer, WrongMethod, accepts_gzip, base_url, root_links
from tidings.http.router import CHANGES, COPIED
from tidings.http.streams.tail_poller import POLL_S, Listen, TailPollers, at_fixed_interval

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable, Mapping

    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.auth.quotas import Charges, ReadCharge
    from tidings.core.changeagent.list import Lister
    from tidings.core.changeagent.users import UserAuthenticator
    from tidings.core.effects import Clock
    from tidings.core.model.feeds import FeedNames
    from tidings.core.replication.serve import PagesRequest, ReplicationReader, RowsRequest
    from tidings.http.streams.tail_poller import TailPoller

Requested = TypeVar("Requested", "PagesRequest", "RowsRequest")
NDJSON = "application/x-ndjson; charset=utf-8"
PACKED_BYTES_MIN = 1024  # compression would not make smaller responses faster
_PACKING = 1  # level of gzip; five times as fast as the default, with an eighth more bytes


@dataclass(slots=True)
class _Request:
    """A request that arrived at the time *came_s*. *gone* is done when the client disconnects.

    *key* is the id of its key, if any, once the request is admitted.
    """

    scope: Message
    headers: dict[str, str]
    gone: Future[None]
    key: str = ""
    came_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def may_wait(self, until_s: float) -> bool:
        return not self.gone.done() and self.left_s(until_s) > 0

    @staticmethod
    def left_s(until_s: float) -> float:
        return until_s - asyncio.get_running_loop().time()


@dataclass(kw_only=True)
class WaitingList(ABC):
    """An app for one kind of list. *guard* is built for the first request.

    *origins* are the origins of web pages that may read. *listen* returns the notifications of a
    feed. By default, the end of the log is polled at a fixed interval. *requests* has the waiting
    requests for operators.
    """

    guard: Callable[[], Guard]
    clock: Clock
    feed_names: FeedNames
    origins: tuple[str, ...]
    listen: Listen = at_fixed_interval
    requests: OpenRequests = field(default_factory=OpenRequests)

    def __post_init__(self) -> None:
        self.pollers = TailPollers(self.listen)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            answer = await self._respond(_Request(scope, headers, gone))
        except TidingsError as error:
            answer = refusal(error, path=scope["path"])
        finally:
            gone.cancel()
        await self._send(send, answer, headers)

    @abstractmethod
    async def _respond(self, request: _Request) -> Answer:
        """Return the response to *request*."""

    @abstractmethod
    def _check(self, feed: str, headers: Mapping[str, str]) -> Allowed:
        """Return the rights of the credential in *headers* on *feed*."""

    async def _send(self, send: Send, answer: Answer, headers: Mapping[str, str]) -> None:
        await send_answer(send, answer, headers, self.origins)

    def _admit(self, name: str, headers: Mapping[str, str]) -> tuple[str, Allowed]:
        feed = self.feed_names.key(name)
        return feed, self._check(feed, headers)

    async def _wait_for(
        self, poller: TailPoller, feed: str, page: int, request: _Request, until_s: float
    ) -> None:
        """Wait for pages after *page*, up to `limits.EXISTS_S`. Without any, check the feed."""
        left_s = request.left_s(until_s)
        with self.requests.connected(feed, partial(self._describe, request, page)):
            await poller.wait(page, request.gone, min(left_s, limits.EXISTS_S))
        if request.left_s(until_s) <= left_s - limits.EXISTS_S:
            await in_thread(self.feed_names.check, feed)

    def _describe(self, request: _Request, page: int) -> Client:
        since_ms = self.clock() - round((time.monotonic() - request.came_s) * 1000)
        agent = user_agent_of(request.headers)
        return Client(LONG_POLL, since_ms, page=page, key=request.key, user_agent=agent)

    async def _check_again(self, request: _Request, feed: str, allowed: Allowed) -> None:
        """Check the credential of *request* again, after a wait.

        This check, unlike `_admit`, does not count the request against the rate of the key again.
        """
        if not allowed.admission.may_end:
            await in_thread(self._admit, public_name(feed), request.headers)
            return
        waited_ms = round(-request.left_s(request.came_s) * 1000)

        def check() -> None:
            now_ms = self.clock()
            self.guard().check_held(feed, allowed.admission, now_ms - waited_ms, now_ms)

        await in_thread(check)


@dataclass(kw_only=True)
class ChangeLists(WaitingList):
    """Lists of changes, and the links at `/`. *lister* and *gate* are built on first use."""

    lister: Callable[[], Lister]
    gate: Callable[[], UserAuthenticator]
    prefix: str = ""
    charges: Charges = free

    async def _respond(self, request: _Request) -> Answer:
        scope, headers = request.scope, request.headers
        match = CHANGES.fullmatch(scope["path"])
        if match is None:  # the path is `/`; no other path is routed here
            return changeagent_answer(200, root_links(base_url(headers, self.prefix)))
        if scope["method"] == "OPTIONS":
            return preflight(headers, self.origins, "GET", "POST")
        feed, allowed = await in_thread(self._admit, match["feed"] or DEFAULT_FEED, headers)
        request.key = allowed.admission.key
        if match["id"] is not None:
            number = _number(match["id"])
            change = await in_thread(self.lister().one, feed, number, allowed.bound)
            return Answer(200, {"content-type": JSON}, change)
        query = replace(parse(query_of(scope)), bound=allowed.bound)
        listed = partial(in_thread, self._list, feed, self.charges(feed, allowed.admission))
        first: Listing = await listed(query)
        listing = await self._wait(request, feed, query, first, listed)
        if listing is not first:
            await self._check_again(request, feed, allowed)
        shared = sharing(allowed, waits=query.waits, full=listing.is_full)
        return Answer(200, {"content-type": JSON, **shared}, listing.to_json())

    def _check(self, feed: str, headers: Mapping[str, str]) -> Allowed:
        return self.gate().check(feed, READ, credential_from(headers.get("authorization")))

    def _list(self, feed: str, charge: ReadCharge, query: Query) -> Listing:
        """Return the listing, and charge the key for it.

        The listing is returned even if the key exceeds its rate. The excess then counts against
        later reads.
        """
        listing = self.lister().list(feed, query)
        charge.add(listing.read)
        return listing

    async def _wait(
        self,
        request: _Request,
        feed: str,
        query: Query,
        listing: Listing,
        listed: Callable[[Query], Awaitable[Listing]],
    ) -> Listing:
        """Return *listing*, or later entries that arrive while the client waits.

        A client that may have read pages that were lost does not wait, because it must start again.
        """
        until_s = request.came_s + min(query.block_s, limits.CHANGES_BLOCK_S_MAX)
        # Wait until the hole is filled, because the client may have posted entries after the hole.
        if listing.waiting:
            now_s = asyncio.get_running_loop().time()
            until_s = max(until_s, now_s + limits.CHANGES_HOLE_S)
        may_wait = query.limit > 0 and not listing.lost
        with self.pollers.using(feed, partial(self.lister().reader.read, feed)) as poller:
            while may_wait and not listing.entries and request.may_wait(until_s):
                if listing.at_end or listing.waiting:
                    await self._wait_for(poller, feed, listing.page, request, until_s)
                listing = await self._after(query, listed, listing, poller)
        return listing

    async def _after(
        self,
        query: Query,
        listed: Callable[[Query], Awaitable[Listing]],
        listing: Listing,
        poller: TailPoller,
    ) -> Listing:
        """Return the entries after *listing*.

        Take the entries from memory if *poller* has read them recently, else read the log.
        """
        tail = poller.tail if listing.at_end or listing.waiting else None
        if tail is not None and tail.reaches(listing.page):
            pages = tail.after(listing.page)
            if not pages:
                return listing
            before = replace(listing, entries=(), read=0)
            key = before, query.limit, query.tags, query.bound
            return poller.once(key, partial(extend_listing, before, query, pages))
        following = await listed(replace(query, since=listing.next, strict=False))
        return replace(following, at_start=listing.at_start)


@dataclass(frozen=True, slots=True)
class _Reply:
    """A batch, and its *text*."""

    batch: ReplicationBatch
    text: str

    @property
    def is_empty(self) -> bool:
        return not (self.batch.pages or self.batch.pending or self.batch.status.ended)


@dataclass(kw_only=True)
class ReplicationApp(WaitingList):
    """Pages and rows for chained feeds. *replication_reader* is built on first use."""

    replication_reader: Callable[[], ReplicationReader]

    async def _respond(self, request: _Request) -> Answer:
        scope = request.scope
        if scope["method"] == "OPTIONS":
            return preflight(request.headers, self.origins, "GET")
        if scope["method"] != "GET":
            raise WrongMethod(scope["method"], "GET, OPTIONS")
        match = COPIED.fullmatch(scope["path"])
        assert match is not None  # other paths are not routed here
        feed, allowed = await in_thread(self._admit, match["feed"], request.headers)
        request.key = allowed.admission.key
        query = query_of(scope)
        if match["what"] == "rows":
            text = await in_thread(self._rows, feed, query, allowed)
            return Answer(200, {"content-type": NDJSON}, text)
        requested = restrict(serve.parse_pages_request(query), allowed)
        await in_thread(self.guard().check_leave, feed, requested.selection.filter)
        first = await in_thread(self._pages, feed, requested)
        reply = await self._wait(request, feed, requested, first)
        if reply is not first:
            await self._check_again(request, feed, allowed)
        shared = sharing(allowed, waits=requested.block_s > 0, full=reply.batch.is_full)
        return Answer(200, {"content-type": NDJSON, **shared}, reply.text)

    def _check(self, feed: str, headers: Mapping[str, str]) -> Allowed:
        given = credential_from(headers.get("authorization"))
        return REPLICATE.admit(self.guard(), feed, given)

    async def _send(self, send: Send, answer: Answer, headers: Mapping[str, str]) -> None:
        """Send *answer*, compressed if it is large enough and the client accepts gzip."""
        whole = with_headers(answer, headers, self.origins)
        fields, body = dict(whole.headers), whole.body.encode()
        if len(body) >= PACKED_BYTES_MIN and accepts_gzip(headers):
            body = await in_thread(partial(gzip.compress, body, _PACKING, mtime=0))
            fields["content-encoding"] = "gzip"
        await send_response(send, answer.status, fields, body)

    def _rows(self, feed: str, query: serve.Query, allowed: Allowed) -> str:
        requested = restrict(serve.parse_rows_request(query), allowed)
        self.guard().check_leave(feed, requested.selection.filter)
        reader = self.replication_reader()
        rows = reader.rows(feed, requested.bucket, requested.after, requested.selection)
        return encode_rows(rows)

    def _pages(self, feed: str, requested: PagesRequest) -> _Reply:
        reader = self.replication_reader()
        batch = reader.pages(feed, requested.after, requested.selection, requested.size)
        return _Reply(batch, encode_batch(batch))

    async def _wait(
        self, request: _Request, feed: str, requested: PagesRequest, reply: _Reply
    ) -> _Reply:
        """Return *reply*, or the next reply that is not empty while the caller waits.

        It is read and encoded once for all callers that wait for the same.
        """
        until_s, key = request.came_s + requested.block_s, replace(requested, block_s=0)
        leave = requested.selection.filter.leave
        read = partial(self.replication_reader().catch_up.read, feed, leave=leave)
        with self.pollers.using(feed, read, leave=leave) as poller:
            while reply.is_empty and request.may_wait(until_s):
                end = min(requested.after.page, reply.batch.status.head)  # it may be before `after`
                await self._wait_for(poller, feed, end, request, until_s)
                reading = poller.once(
                    key, lambda: asyncio.ensure_future(in_thread(self._pages, feed, key))
                )
                try:
                    reply = await asyncio.shield(reading)
                except Exception:
                    poller.forget(key)
                    raise
                if reply.is_empty:  # new pages are before `after`, or not readable yet
                    poller.forget(key)
                    pause_s = min(POLL_S, max(0, request.left_s(until_s)))
                    await asyncio.wait({request.gone}, timeout=pause_s)
        return reply


def restrict(requested: Requested, allowed: Allowed) -> Requested:
    """Return *requested*, restricted to the data in *allowed*."""
    selection = requested.selection
    narrowed = allowed.narrow(selection.filter)
    selection = replace(selection, filter=narrowed, bound=allowed.bound)
    return replace(requested, selection=selection)


def _number(text: str) -> int:
    try:
        return parse_integer(text, 0, ID_MAX)
    except ValueError:
        raise InvalidChange("Invalid ID", value=text) from None
