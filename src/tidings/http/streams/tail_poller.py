"""A reader of the end of a feed's log, shared by all waiting streams of this process.

On a server, the notification of a commit has the new pages, so they need not be read.

The reader reads only while a stream waits, at the rate of a single stream. A thousand streams
therefore cost no more than one, and a Lambda function with one client costs no more than without
this reader. On a server, the reader writes to the connections of streams at the end of the log, so
that these streams need no tasks of their own. The text of a page is built and encoded once for all
streams that send the same text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tidings.core.catchup.catchup import Progress
from tidings.core.catchup.sse import Chunk, Stream, Tail
from tidings.core.log.reader import Run, contiguous
from tidings.http.asgi import frame_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings.core.counters import StreamCounter
    from tidings.core.model.pages import Page
    from tidings.http.asgi import WriteNow

Result = TypeVar("Result")
# Interval between two reads of the end of the log. A consumer is notified within a second, and five
# reads a second cost 5 RRU.
POLL_S = 0.2
SHARED_MAX = 64  # different results of `TailPoller.once` that are kept; each has up to 1 MB
SLICE = 200  # clients that are written to in a row, in 2 to 4 ms if they share a text
SLICE_S = 0.005  # time after which a slice ends with the next text that had to be built
READERS = 8  # threads that read the ends of logs; a read takes some milliseconds
FRESH_S = 5 * POLL_S  # maximum age of the last read; after that, the log may be much longer
# Time without data after which a stream gets a heartbeat. oplog sent one every 25.5 s, and proxies
# close silent streams after 30 s.
HEARTBEAT_MS = 20_000


class Notifications(Protocol):
    """A signal to a poller that there may be new pages."""

    async def wait(self) -> list[Page]:
        """Return when there may be new pages since the last call.

        Return pages that were committed since then, or [] if the log must be read.
        """

    def look(self) -> None:
        """Make the next `wait` return at once, because there may already be new pages."""

    def mark_written(self, streams: int) -> None:
        """Note that the pages after the last `wait` were written to *streams* connections."""

    def close(self) -> None:
        """Send no more notifications, because the poller has ended."""


class FixedInterval:
    """Implements `Notifications` at a fixed interval, for processes that receive none."""

    async def wait(self) -> list[Page]:
        await asyncio.sleep(POLL_S)
        return []

    def look(self) -> None:
        """Do nothing, because `wait` returns soon in any case."""

    def mark_written(self, streams: int) -> None:
        """Do nothing, because the process does not measure it."""

    def close(self) -> None:
        """Do nothing, because nothing has a reference to this object."""


Listen = Callable[[str], Notifications]  # a function that returns the notifications of a feed


def at_fixed_interval(feed: str) -> Notifications:
    """Implement `Listen` with a fixed interval for every feed."""
    return FixedInterval()


class _Text(NamedTuple):
    """The framed text of some pages, the number of its events, and the progress after the pages."""

    frame: bytes
    events: int
    progress: Progress


class _Texts:
    """The texts of the pages in *tail*, each built and encoded once for all streams that need it.

    The streams that need the same text have the same key (`text_key`) and the same progress, or
    their filters select the same parts.
    """

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._texts: dict[tuple[Hashable, Progress], _Text | None] = {}
        self._of_parts: dict[tuple[Hashable, ...], _Text] = {}
        self._key: Hashable = None
        self._progress: Progress | None = None
        self._text: _Text | None = None

    @property
    def built(self) -> int:
        """Return the number of texts that were built or searched for."""
        return len(self._texts)

    def of(self, stream: Stream) -> _Text | None:
        """Return the text for *stream*, or None if it needs pages that are not in memory."""
        key, progress = stream.text_key, stream.progress
        # Most streams have the very key and progress of the previous one. Comparing is cheaper than
        # hashing.
        if key is not self._key or progress is not self._progress:
            if (key, progress) not in self._texts:
                self._texts[key, progress] = self._build(stream)
            self._key, self._progress = key, progress
            self._text = self._texts[key, progress]
        return self._text

    def _build(self, stream: Stream) -> _Text | None:
        before = stream.progress
        parts = stream.select(self._tail)
        if parts is None:
            return None
        progress, stream.progress = stream.progress, before  # building may fail
        key = stream.text_form, progress, *parts
        if key not in self._of_parts:
            text = stream.chunk(parts).text
            frame = frame_chunk(text) if text else b""
            self._of_parts[key] = _Text(frame, stream.count(text), progress)
        return self._of_parts[key]


class LiveStream:
    """The progress of an open stream. *counter* counts its events.

    If *write* is given, the poller may write to the stream.

    `left` is done when the task of the stream must continue instead of the poller: the client does
    not keep up, the credential has ended, or the log does not answer. `sent` is the progress up to
    which data was sent.
    """

    def __init__(self, stream: Stream, counter: StreamCounter, write: WriteNow | None) -> None:
        self.stream, self.counter, self.can_join = stream, counter, write is not None
        self._write = write or (lambda _: False)
        self._loop = asyncio.get_running_loop()
        self._sent_s, self.sent = self._loop.time(), stream.progress
        self.detached: asyncio.Future[None] = self._loop.create_future()

    @property
    def silent_ms(self) -> float:
        """Return the time until a heartbeat has to be sent."""
        return HEARTBEAT_MS - (self._loop.time() - self._sent_s) * 1000

    def mark_sent(self, progress: Progress) -> None:
        """Record that data up to *progress* was sent now."""
        self._sent_s, self.sent = self._loop.time(), progress

    def begin(self) -> bool:
        """Return True if the poller can serve the stream now."""
        stream = self.stream
        if not self.can_join or stream.filter.leave or not stream.progress.in_step:
            return False
        self.detached = self._loop.create_future()
        return True

    def leave(self) -> None:
        """Let the task of the stream continue instead of the poller."""
        if not self.detached.done():
            self.detached.set_result(None)

    def send(self, texts: _Texts) -> bool:
        """Write the pages that were not sent; return True if there was something to write."""
        stream = self.stream
        if self.detached.done() or (stream.access.admission.may_end and stream.has_ended()):
            self.leave()
            return False
        text = texts.of(stream)
        if text is None or not (text.frame == b"" or self._write(text.frame)):
            self.leave()
            return False
        stream.progress = text.progress
        if text.frame:
            self.counter.send(text.events)
            self.mark_sent(text.progress)
        return text.frame != b""


class TailPoller:
    """A poller of a feed. It calls *read* in *threads* if *notifications* lack the new pages.

    *read* returns the pages after a page number. If *selects* is True, *read* does not return every
    page of the log, so it is always called. *users* counts the requests that use the poller.
    """

    def __init__(
        self,
        read: Callable[[int], Run],
        notifications: Notifications,
        threads: ThreadPoolExecutor | None = None,
        *,
        selects: bool = False,
    ) -> None:
        self.users = 0
        self._read, self._notifications, self._selects = read, notifications, selects
        self._tail = Tail()
        self._is_complete = False  # True if the tail had all pages of the log when it was extended
        self._shared: dict[Hashable, Any] = {}
        self._read_s = float("-inf")
        self._waiting = 0
        self._live: dict[LiveStream, None] = {}
        self._arrival: asyncio.Future[None] | None = None  # done when new pages have arrived
        self._looking: asyncio.Task[None] | None = None
        # Use dedicated threads, because streams that catch up may occupy all other threads.
        self._threads = threads or ThreadPoolExecutor(1, thread_name_prefix="tail-poller")

    def close(self) -> None:
        """End the notifications, because no request uses the poller."""
        self._notifications.close()

    @property
    def tail(self) -> Tail | None:
        """Return the pages in memory, or None if the last read is too long ago."""
        return self._tail if self._is_fresh else None

    def once(self, key: Hashable, build: Callable[[], Result]) -> Result:
        """Return the result of *build*, which is the same for all callers with an equal *key*.

        *build* is called once, until there are new pages.
        """
        if key not in self._shared:
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._shared[key] = build()
        result: Result = self._shared[key]
        return result

    def forget(self, key: Hashable) -> None:
        """Build the result for *key* again when it is needed next."""
        self._shared.pop(key, None)

    async def wait(self, page: int, gone: asyncio.Future[Any], timeout_s: float) -> None:
        """Return when a page after *page* exists, when *gone* is done, or after *timeout_s*.

        *page* is the last page that the caller has read.

        Raises:
            Unavailable: the log does not answer.
        """
        self._begin(page)
        if self._tail.last > page:
            return
        self._waiting += 1
        if self._arrival is None:
            self._arrival = asyncio.get_running_loop().create_future()
        self._look_on()
        try:
            done, _ = await asyncio.wait(
                {self._arrival, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
        finally:
            self._waiting -= 1
            self._rest()

    def join(self, live: LiveStream) -> None:
        """Write new pages to *live*, which is at the end of the log, until `part` is called."""
        self._begin(live.stream.progress.page)
        self._live[live] = None
        self._look_on()
        live.send(_Texts(self._tail))

    def part(self, live: LiveStream) -> None:
        del self._live[live]
        self._rest()

    def _begin(self, page: int) -> None:
        """Start after *page* if the pages in memory may be far from the end of the log."""
        if not self._is_looking and not self._is_fresh:
            self._tail.start(page)
            self._shared.clear()
            self._is_complete = False
            self._read_s = self._now_s()
            self._notifications.look()

    def _look_on(self) -> None:
        if not self._is_looking:
            self._looking = asyncio.ensure_future(self._look())

    def _rest(self) -> None:
        """Stop reading if no stream waits."""
        if not self._waiting and not self._live and self._looking is not None:
            self._looking.cancel()
            self._looking = None  # the task is done only in the next iteration of the event loop

    async def _look(self) -> None:
        """Read when there are new pages, once for all streams, until reading fails."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                committed, last = await self._notifications.wait(), self._tail.last
                pages = [page for page in committed if page.number > last]
                if self._is_complete and pages and contiguous(pages, last) == len(pages):
                    run = Run(pages)
                else:
                    run = await loop.run_in_executor(self._threads, self._read, last)
                    self._is_complete = not (self._selects or run.waiting or run.more)
                if run.more:
                    self._notifications.look()
                self._read_s = self._now_s()
                if self._tail.extend(run):
                    self._shared.clear()
                    await self._send()
            except BaseException as error:  # also CancelledError, when no stream waits any more
                self._notifications.look()
                if isinstance(error, Exception):
                    self._fail(error)
                    return
                raise

    async def _send(self) -> None:
        """Write the new pages to the streams, in slices, so that the loop serves others as well."""
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.set_result(None)
        texts, now_s = _Texts(self._tail), asyncio.get_running_loop().time
        count, built, until_s, written = 0, 0, now_s() + SLICE_S, 0
        for live in [*self._live]:
            if count == SLICE or (texts.built > built and now_s() >= until_s):
                self._notifications.mark_written(written)
                await asyncio.sleep(0)
                count, until_s, written = 0, now_s() + SLICE_S, 0
            count, built = count + 1, texts.built
            if live in self._live:
                written += live.send(texts)
        self._notifications.mark_written(written)

    def _fail(self, error: Exception) -> None:
        self._looking = None
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.set_exception(error)
            arrival.exception()  # avoid a warning if no stream retrieves the error
        for live in self._live:
            live.leave()

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    @property
    def _is_fresh(self) -> bool:
        return self._now_s() - self._read_s < FRESH_S

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


class TailPollers:
    """The pollers of a process: per feed, one for readers of `leave` events and one for others.

    A poller that no request has used for `FRESH_S` is removed, because its pages are too old. The
    threads end with the last poller.
    """

    def __init__(self, listen: Listen = at_fixed_interval) -> None:
        self._listen = listen
        self._pollers: dict[tuple[str, bool], TailPoller] = {}
        self._ending: set[tuple[str, bool]] = set()  # pollers for which `_end` is scheduled
        self._threads: ThreadPoolExecutor | None = None

    @contextmanager
    def using(
        self, feed: str, read: Callable[[int], Run], *, leave: bool = False
    ) -> Iterator[TailPoller]:
        """Keep the poller of *feed* inside the context, created with *read* if it is missing."""
        key = feed, leave
        if key not in self._pollers:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="tail-poller")
            listening = self._listen(feed)
            self._pollers[key] = TailPoller(read, listening, self._threads, selects=leave)
        poller = self._pollers[key]
        poller.users += 1
        try:
            yield poller
        finally:
            poller.users -= 1
            if not poller.users and key not in self._ending:
                self._ending.add(key)
                asyncio.get_running_loop().call_later(FRESH_S, self._end, key)

    def _end(self, key: tuple[str, bool]) -> None:
        self._ending.discard(key)
        if self._pollers[key].users:
            return
        self._pollers.pop(key).close()
        if not self._pollers and self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None


class Chunks:
    """The chunks of a stream, from memory if the poller has their pages, else from the stores."""

    def __init__(self, stream: Stream, poller: TailPoller) -> None:
        self._stream, self.poller = stream, poller
        self._upcoming: asyncio.Task[Chunk] | None = None

    async def next(self, gone: asyncio.Future[None]) -> Chunk | None:
        """Return the next chunk, and start to read the chunk after it while this one is sent.

        Return None if *gone* is done first, so that no thread reads for a client that has left.

        Raises:
            Unavailable: the stores do not answer.
        """
        reading = self._upcoming = self._upcoming or asyncio.ensure_future(self._read())
        both: set[asyncio.Future[Any]] = {reading, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            return None
        chunk, self._upcoming = reading.result(), None
        if not (chunk.at_frontier or chunk.wait_ms):
            self._upcoming = asyncio.ensure_future(self._read())
        return chunk

    async def rest(self, chunk: Chunk, gone: asyncio.Future[None], wait_ms: float) -> None:
        """Wait for new pages after *chunk*, or until the key may read, but at most *wait_ms*."""
        if chunk.wait_ms:
            await asyncio.wait({gone}, timeout=min(chunk.wait_ms, wait_ms) / 1000)
        elif chunk.at_frontier:
            await self.poller.wait(self._stream.progress.page, gone, wait_ms / 1000)

    def stop(self) -> None:
        """Cancel the read in progress and ignore its errors."""
        if self._upcoming is not None:
            self._upcoming.cancel()

    async def _read(self) -> Chunk:
        tail = self.poller.tail
        chunk = self._stream.take(tail) if tail is not None else None
        return chunk if chunk is not None else await asyncio.to_thread(self._stream.next)
