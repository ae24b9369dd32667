"""An SSE consumer: opens a stream after its last id, reads, is cut off, comes back."""

from __future__ import annotations

from typing import Any

from tests.simulation.consumer import Consumer, Session, new_consumer, sse_blocks
from tests.simulation.functions import FEED
from tests.simulation.process import Process
from tests.simulation.world import STREAM_TIMEOUT_S, World
from tidings.core import limits
from tidings.core.catchup.sse import Stream

_POLL_MS = 1_000
_RETRY_MS = 2_000
_THINK_MS = 10_000
_SILENCE_MS = 30_000  # 7.3: the feed speaks every 25 s, so by now the stream is dead


class StreamConsumer:
    """*session* is the stream it reads now, None between two."""

    def __init__(self, world: World, name: str, feed: str = FEED) -> None:
        self.world, self.feed = world, feed
        self.consumer: Consumer = new_consumer(world, name, feed)
        self.session: Session | None = None
        self._serving: Process | None = None
        self._spoke_ms = 0
        world.scheduler.spawn(name, self._live)

    def _live(self) -> None:
        while True:
            self.world.stay_away()
            if self.world.sleep_through_lull() and self.world.random.random() < 0.5:
                self.consumer = new_consumer(self.world, self.consumer.name, self.feed)
            self._read()
            self.world.scheduler.sleep(self.world.random.uniform(100, _RETRY_MS))

    def _read(self) -> None:
        """Read one stream, from its beginning to its end."""
        self._serving = self.world.machine.start("stream", STREAM_TIMEOUT_S, self._serve)
        self._stay()
        self.session = None

    def _stay(self) -> None:
        """Until the stream ends or falls silent, or we have had enough of it."""
        serving, self._spoke_ms = self._serving, self.world.scheduler.now_ms
        while serving is not None and serving.task is not None and not serving.task.done:
            self.world.scheduler.sleep(self.world.random.uniform(_POLL_MS, _THINK_MS))
            silent = self.world.scheduler.now_ms - self._spoke_ms > _SILENCE_MS
            if silent or self.world.faults.strikes("hang_up") or self.world.in_lull:
                self.world.machine.note(self.consumer.name, "hangs up", self.consumer.cursor)
                self.world.scheduler.kill(serving.task)
                self._serving = None
                return

    def _serve(self, process: Process) -> None:
        """Run the function's side; each block reaches the consumer by itself."""
        consumer = self.consumer
        session = Session(consumer, lambda: self.world.gone_until(self.feed))
        asked, frontier = consumer.cursor, consumer.log.frontier
        stream = self._open(process, asked)
        session.starts(asked)
        if asked in ("", "now"):  # 7.5: the answer names the place
            session.starts_now(stream.progress.cursor, frontier)
        self.session = session
        while True:
            chunk = stream.next()
            self._spoke_ms = self.world.scheduler.now_ms
            for id, name, data in sse_blocks(chunk.text):
                process.sleep(0.5)
                if self._serving is not process:
                    return
                session.event(id, name, data)
                consumer.cursor = id
                if self._has_enough(name, data):
                    return
            if chunk.at_frontier:
                process.sleep(_POLL_MS)

    def _has_enough(self, name: str, data: dict[str, Any]) -> bool:
        """Return True to cut the stream after the event just handled."""
        return False

    def _open(self, process: Process, cursor: str) -> Stream:
        wanted = self.consumer.wanted
        types = None if wanted.types is None else ",".join(sorted(wanted.types))
        parents = None if wanted.parents is None else ",".join(sorted(wanted.parents))
        assert len(cursor) <= limits.CURSOR_CHARS_MAX
        leave = "true" if self.consumer.wanted.leave else None
        streamer = self.world.functions.services(process).streamer
        return streamer.open(
            self.feed, cursor, {"types": types, "parents": parents, "leave": leave}
        )
