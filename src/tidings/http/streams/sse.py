"""Serve streams of events at `GET /`, `/ops` and `/feeds/{feed}/ops`, as SSE or NDJSON.

With Lambda response streaming, one process serves one client; a server process serves many clients.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.guard import credential_from
from tidings.core.catchup.sse import RESUME, Chunk, Stream, Streamer
from tidings.core.counters import CounterDelta, Counters, StreamCounter
from tidings.core.effects import Clock
from tidings.core.errors import TidingsError
from tidings.core.maintenance.clients import NDJSON, SSE, Client, OpenRequests, user_agent_of
from tidings.core.model.cursors import NOW
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.core.settings.profiles import is_oplog
from tidings.http.answers import headers_for, refusal
from tidings.http.asgi import (
    CUT_AFTER,
    WRITE_NOW,
    CutAfter,
    Message,
    Query,
    Receive,
    Send,
    headers_of,
    in_thread,
    preflight,
    query_of,
    send_answer,
    send_body,
    send_head,
    wait_for_disconnect,
)
from tidings.http.request import NotAcceptable, named_quality, quality
from tidings.http.router import check_operations, feed_of
from tidings.http.streams.tail_poller import (
    Chunks,
    Listen,
    LiveStream,
    TailPoller,
    TailPollers,
    at_fixed_interval,
)

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Sequence

log = logging.getLogger(__name__)
# The interval between two checks of the credentials of streams. A stream ends at most five seconds
# after its credential has ended. This time is the sum of the interval and the maximum age of a
# cached profile (the settings of a feed).
CHECK_S = 0.5
CUT_S = 0.3  # time for a client to receive the end of a stream after its credential has ended
LAST_MS = 5_000  # time for a client to receive the last piece before the function ends
_LAMBDA = "x-amzn-lambda-context"  # header of the Lambda Web Adapter, with the deadline
EVENT_STREAM = "text/event-stream"


@dataclass(eq=False, slots=True)
class OpenStream:
    """An event stream in progress. *over* is done when the stream has to end.

    For *cut_after* see `asgi.CUT_AFTER`.
    """

    stream: Stream
    over: asyncio.Future[None]
    cut_after: CutAfter
    has_left: bool = False

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def revoke(self) -> None:
        """End the stream because its credential has ended, even if the client does not read."""
        self.end()
        self.cut_after(CUT_S)


class OpenStreams:
    """The open streams. This class ends them when their credential ends or the server stops.

    If *lasting* is True, streams have no time limit. Passwords are then checked again when the
    profile of their feed changes, and the stream slots of keys (`auth.quotas.StreamSlot`) are
    renewed.
    """

    def __init__(self, *, lasting: bool) -> None:
        self._lasting = lasting
        self._open: dict[OpenStream, None] = {}
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def serving(
        self, stream: Stream, receive: Receive, cut_after: CutAfter
    ) -> Iterator[OpenStream]:
        """Yield *stream* as an open stream, which ends when *receive* reports a disconnect."""
        one = OpenStream(stream, asyncio.get_running_loop().create_future(), cut_after)
        leaving = asyncio.ensure_future(_note_leaving(one, receive))
        self._open[one] = None
        if self._checking is None:
            self._checking = asyncio.ensure_future(self._check_often())
        try:
            yield one
        finally:
            leaving.cancel()
            self._open.pop(one, None)
            if not self._open and self._checking is not None:
                self._checking.cancel()
                self._checking = None

    def __len__(self) -> int:
        return len(self._open)

    def end_all(self) -> None:
        """End every stream between two events. Clients resume, perhaps at another process."""
        for each in self._open:
            each.end()

    async def _check_often(self) -> None:
        """Check all credentials periodically, in one thread, so that each profile is read once."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                for each in await in_thread(self._find_ended, list(self._open)):
                    each.revoke()
            except TidingsError as error:
                log.warning("credentials of event streams could not be checked: %s", error)
            except Exception:
                log.exception("credentials of event streams could not be checked")

    def _find_ended(self, streams: Sequence[OpenStream]) -> list[OpenStream]:
        if self._lasting:
            for each in streams:
                each.stream.access.renew()
        return [each for each in streams if self._has_ended(each.stream)]

    def _has_ended(self, stream: Stream) -> bool:
        if self._lasting or stream.access.admission.may_end:
            return stream.has_ended()
        return not stream.access.gate.guard.feed_names.exists(stream.feed)


async def _note_leaving(one: OpenStream, receive: Receive) -> None:
    await wait_for_disconnect(receive)
    one.has_left = True
    one.end()


class ClientCounter:
    """Counts the open streams of this process and their events for `/status`.

    *place* identifies this process in the counts. A separate task writes the counts. Only the last
    stream waits for the write, because Lambda freezes a function after the end of its last stream.
    """

    def __init__(self, counters: Callable[[], Counters], clock: Clock, reporter: str) -> None:
        self._counters, self._clock, self._reporter = counters, clock, reporter
        self._by_feed: defaultdict[str, StreamCounter] = defaultdict(StreamCounter)
        self._writing = asyncio.Lock()
        self._ticking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def counting(self, feed: str) -> AsyncIterator[StreamCounter]:
        """Count a stream of *feed* while it is open, however it ends."""
        counter = self._by_feed[feed]
        counter.open()
        self._wake()
        try:
            yield counter
        finally:
            counter.close()
            if counter.has_left:
                await self._write(feed)

    def _wake(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        """Write counts that are due, until no feed has clients or unwritten counts."""
        while not all(counter.is_empty for counter in self._by_feed.values()):
            for feed, counter in list(self._by_feed.items()):
                if counter.is_due(self._clock()):
                    await self._write(feed)
            await asyncio.sleep(limits.COUNT_SOON_MS / 1000)

    async def _write(self, feed: str) -> None:
        async with self._writing:
            delta = self._by_feed[feed].take_delta(self._clock())
            try:
                await asyncio.to_thread(self._store, feed, delta)
            except TidingsError:
                self._by_feed[feed].give_back(delta)
                self._wake()
            if self._by_feed[feed].is_empty:
                del self._by_feed[feed]

    def _store(self, feed: str, delta: CounterDelta) -> None:
        until_ms = self._clock() + limits.PRESENCE_MS
        self._counters().attend(feed, self._reporter, delta.clients, until_ms=until_ms)
        if delta.connections or delta.sent:
            self._counters().serve(feed, connections=delta.connections, sent=delta.sent)


class EventStreams:
    """The app for event streams. *streamer* is built for the first request.

    *origins* are the origins of web pages that may read. A stream ends after *longest_ms*, because
    Lambda does not report a disconnect, so the stream occupies a function until then. If
    *longest_ms* is None, streams have no time limit. *listen* returns the notifications of a feed.
    *requests* has the open streams for operators.
    """

    def __init__(
        self,
        *,
        streamer: Callable[[], Streamer],
        clients: ClientCounter,
        origins: tuple[str, ...],
        longest_ms: int | None,
        listen: Listen = at_fixed_interval,
        requests: OpenRequests | None = None,
    ) -> None:
        self._requests = requests or OpenRequests()
        self._clients, self._pollers = clients, TailPollers(listen)
        self._open_streams = OpenStreams(lasting=longest_ms is None)
        self._streamer, self._origins, self._longest_ms = streamer, origins, longest_ms
        self._turns = asyncio.Semaphore(1)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = headers_of(scope)
        if scope["method"] == "OPTIONS":
            allowed = preflight(headers, self._origins, "GET")
            await send_answer(send, allowed, headers, self._origins)
            return
        query = query_of(scope)
        cursor = headers.get("last-event-id") or query.get("lastEventId", [""])[0]
        try:
            stream = await in_thread(self._open, scope, headers, query, cursor)
        except TidingsError as error:
            as_oplog = await in_thread(self._as_oplog, scope["path"])
            refused = refusal(error, as_oplog=as_oplog)
            await send_answer(send, refused, headers, self._origins)
            return
        try:
            await self._answer(stream, cursor, scope, receive, send)
        finally:
            await self._release_slot(stream)

    @property
    def count(self) -> int:
        """Return the number of open streams."""
        return len(self._open_streams)

    def end_all(self) -> None:
        """End all streams, because the server stops."""
        self._open_streams.end_all()

    async def _answer(
        self, stream: Stream, cursor: str, scope: Message, receive: Receive, send: Send
    ) -> None:
        """Serve the stream until its time limit; soon after that, disconnect a stalled client."""
        headers = headers_of(scope)
        budget = _limits_of(headers, stream.catch_up.reader.clock(), self._longest_ms)
        cut_s = None if self._longest_ms is None else (self._longest_ms + LAST_MS) / 1000
        cut_after: CutAfter = scope.get(CUT_AFTER, lambda _: None)
        describe = partial(_describe, stream, user_agent_of(headers))
        with suppress(TimeoutError), self._requests.connected(stream.feed, describe):
            async with asyncio.timeout(cut_s):
                with self._open_streams.serving(stream, receive, cut_after) as one:
                    async with self._clients.counting(stream.feed) as counter:
                        block = await self._start(send, stream, cursor, headers, budget)
                        counter.send(stream.count(block))
                        live = LiveStream(stream, counter, scope.get(WRITE_NOW))
                        await self._serve(one, live, send, budget)
                await self._release_slot(stream)  # Lambda freezes a function after its response
                if not one.has_left:
                    await send_body(send, "", more=False)

    def _open(self, scope: Message, headers: dict[str, str], query: Query, cursor: str) -> Stream:
        feed = check_operations(scope["method"], scope["path"], "GET")
        accept = headers.get("accept", "") or ("*/*" if scope["path"] == "/" else "")
        blocks = accepts_events(accept)
        if not blocks and not accepts_lines(accept):
            rule = f"must allow {EVENT_STREAM} or {NDJSON_TYPE}"
            raise NotAcceptable(rule, field="Accept", value=headers.get("accept"))
        return self._streamer().open(
            feed,
            cursor,
            {name: values[0] for name, values in query.items()},
            credential_from(headers.get("authorization")),
            lines=not blocks,
        )

    async def _serve(self, one: OpenStream, live: LiveStream, send: Send, budget: _Budget) -> None:
        """Send the events of the stream until the stream is over."""
        stream = live.stream
        leave = stream.filter.leave
        read = partial(stream.catch_up.read, stream.feed, leave=leave)
        with self._pollers.using(stream.feed, read, leave=leave) as poller:
            chunks = Chunks(stream, poller)
            try:
                await self._send_until(one, live, chunks, send, budget)
            finally:
                chunks.stop()

    async def _send_until(
        self, one: OpenStream, live: LiveStream, chunks: Chunks, send: Send, budget: _Budget
    ) -> None:
        stream, over = one.stream, one.over
        while not over.done() and budget.any(_now_ms()):
            try:
                chunk = await chunks.next(over)
                if chunk is None:
                    break
                # Check after the read, because the read may take long, and a client must not
                # receive anything after its key has ended.
                if stream.access.admission.may_end and await in_thread(stream.has_ended):
                    one.revoke()
                    break
                if await self._send_events(send, live, chunk, over, budget):
                    live.mark_sent(chunk.progress)
                elif over.done() or not budget.any(_now_ms()):
                    break  # the stream may be over before the first piece of the chunk
                await self._keep_alive(live, send)
                if chunk.at_frontier and budget.is_unlimited and live.begin():
                    await self._serve_live(one, live, chunks.poller, send)
                elif budget.any(_now_ms()):
                    wait_ms = min(live.silent_ms, budget.end_ms - _now_ms())
                    await chunks.rest(chunk, over, max(0, wait_ms))
            except TidingsError:
                break  # the client resumes from its cursor

    async def _serve_live(
        self, one: OpenStream, live: LiveStream, poller: TailPoller, send: Send
    ) -> None:
        """Let *poller* write to the stream until it leaves the stream, or the stream is over."""
        try:
            poller.join(live)
            while not (one.over.done() or live.detached.done()):
                await self._keep_alive(live, send)
                await asyncio.wait(
                    {one.over, live.detached},
                    timeout=live.silent_ms / 1000,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            poller.part(live)

    async def _keep_alive(self, live: LiveStream, send: Send) -> None:
        """Send a heartbeat if nothing was sent for `HEARTBEAT_MS`."""
        if live.silent_ms <= 0:
            progress = live.stream.progress
            await send_body(send, live.stream.silence(live.sent, progress), more=True)
            live.mark_sent(progress)

    async def _release_slot(self, stream: Stream) -> None:
        with suppress(TidingsError):  # if this fails, the slot expires
            await in_thread(stream.access.close)

    async def _send_events(
        self, send: Send, live: LiveStream, chunk: Chunk, over: Future[None], budget: _Budget
    ) -> bool:
        """Send the pieces of *chunk* until the stream ends; return True if any piece was sent."""
        sent, pieces = False, chunk.pieces()
        while True:
            # One of the streams that catch up builds and writes a piece in a turn of the loop.
            async with self._turns:
                await asyncio.sleep(0)
            piece = next(pieces, None)
            if piece is None or over.done() or not budget.any(_now_ms()):
                break
            # Send `retry` in the block of an event, because oplog's clients treat a block without
            # an event as an error.
            budget.size -= await send_body(send, budget.resume + piece, more=True)
            live.counter.send(live.stream.count(piece))
            budget.resume, sent = "", True
        return sent

    async def _start(
        self, send: Send, stream: Stream, cursor: str, headers: dict[str, str], budget: _Budget
    ) -> str:
        """Send the headers and the text before the first event; return the text."""
        without_cursor, ends = cursor in ("", NOW), self._longest_ms is not None
        answer = {
            "content-type": f"{NDJSON_TYPE if stream.lines else EVENT_STREAM}; charset=utf-8",
            # A client that is disconnected before its first event resumes from this position.
            "last-event-id": stream.progress.cursor if without_cursor else cursor,
        }
        always = headers_for(headers.get("origin", ""), self._origins)
        await send_head(send, 200, {**always, **answer})
        await send_body(send, "", more=True)
        block = stream.beginning(without_cursor=without_cursor)
        if block:
            budget.size -= await send_body(send, block, more=True)
        elif not stream.lines and (stream.format.cursors or ends):
            budget.resume = RESUME
        return block

    def _as_oplog(self, path: str) -> bool:
        guard = self._streamer().gate.guard
        return is_oplog(guard.profiles, guard.feed_names, feed_of(path))


def _describe(stream: Stream, user_agent: str) -> Client:
    transport = NDJSON if stream.lines else SSE
    key, page = stream.access.admission.key, stream.progress.page
    return Client(transport, stream.access.since_ms, stream.filter, page, key, user_agent)


def accepts_events(accept: str) -> bool:
    """Return True if event streams are accepted and NDJSON is not preferred."""
    weight = quality(accept, EVENT_STREAM)
    return weight > 0 and weight >= named_quality(accept, NDJSON_TYPE)


def accepts_lines(accept: str) -> bool:
    """Return True if *accept* names NDJSON. Clients that accept any type get an event stream."""
    return named_quality(accept, NDJSON_TYPE) > 0


@dataclass(slots=True)
class _Budget:
    """The remaining time and bytes of a response.

    *resume* is the text of a field that is added to the first event. The field sets the client's
    delay before a reconnect.
    """

    end_ms: float = inf
    size: float = inf
    resume: str = ""

    @property
    def is_unlimited(self) -> bool:
        """Return True if there is no limit, and no field to add to the first event."""
        return self.end_ms == self.size == inf and not self.resume

    def any(self, now_ms: float) -> bool:
        return now_ms < self.end_ms and self.size > 0


def _limits_of(headers: dict[str, str], clock_ms: int, longest_ms: int | None) -> _Budget:
    """Return the limits of a response. On Lambda, the deadline of the function is one of them."""
    if longest_ms is None:
        return _Budget()
    try:
        deadline_ms = int(json.loads(headers[_LAMBDA])["deadline"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return _Budget(_now_ms() + longest_ms)
    left_ms = min(longest_ms, deadline_ms - LAST_MS - clock_ms)
    return _Budget(_now_ms() + left_ms, limits.STREAM_BYTES_MAX)


def _now_ms() -> float:
    """Return the time of a monotonic clock."""
    return asyncio.get_running_loop().time() * 1000
