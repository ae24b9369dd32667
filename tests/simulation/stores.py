"""The memory adapters of one world, observed: the model receives every page as it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.fakes import (
    MemoryClaims,
    MemoryConnections,
    MemoryConsumers,
    MemoryCounters,
    MemoryDueFeeds,
    MemoryFollowers,
    MemoryInbox,
    MemoryKeyUsage,
    MemoryLog,
    MemoryOperatorDocuments,
    MemoryRecords,
    MemoryRegistry,
    MemoryRelays,
    MemoryRemovedParents,
    MemoryState,
    MemorySubscriptions,
    MemorySums,
    MemoryTombstones,
)
from tests.simulation.model import Broken, Log
from tidings.core import limits
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.feeds.records import FeedRecord
from tidings.core.maintenance.retention import rounds_in
from tidings.core.model.pages import Page
from tidings.core.state.rows import Row
from tidings.core.websocket.connections import Outcome
from tidings.server.memory import Saved, StoredFollower

OnMessage = Callable[[str], None]


class NoFeedStore:
    """Implements `FeedStore` for a process that has only configured feeds."""

    def record(self, name: str) -> FeedRecord | None:
        return None

    def records(self, after: str = "", limit: int = limits.FEEDS_LISTED) -> Sequence[FeedRecord]:
        return ()

    def unfinished(self) -> Sequence[FeedRecord]:
        return ()

    def save(self, record: FeedRecord) -> bool:
        return False


class ReportingLog(MemoryLog):
    """A log that reports its writes to the model and wakes the followers."""

    def __init__(
        self, models: Mapping[str, Log], moved: Callable[[str], None], saw: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._models, self._moved, self._saw = models, moved, saw
        self.now_ms: Callable[[], int] = lambda: 0
        self.stale: Callable[[int], bool] = lambda age_ms: False
        self._written_ms: dict[tuple[str, int], int] = {}
        self.rising: Callable[[int, int], object] = lambda before, after: None

    def put(self, feed: str, page: Page) -> str:
        taken = page.number in self._feeds[feed].pages
        found = super().put(feed, page)
        if taken and found != page.append_id:
            self._saw("filler came late" if not page.body else "writer was overtaken")
        if not taken:
            self._written_ms[feed, page.number] = self.now_ms()
            if not page.body:
                self._saw("hole was filled")
            self._models[feed].written(page.number, list(page.lines), page.at_ms)
            self._moved(feed)
        return found

    def _misses(self, feed: str, number: int) -> bool:
        return self.stale(self.now_ms() - self._written_ms[feed, number])

    def raise_floor(self, feed: str, page: int) -> None:
        self._saw("floor was raised")
        self.rising(self.floor(feed), page)
        super().raise_floor(feed, page)

    def give_up(self, before_ms: int, chosen: Callable[[], bool]) -> int:
        """Delete some of the pages below the floor written before then; return their number."""
        gone = 0
        for log in self._feeds.values():
            for number, page in list(log.pages.items()):
                if number < log.floor and page.at_ms < before_ms and chosen():
                    del log.pages[number]
                    gone += 1
            log.numbers = sorted(log.pages)
        return gone

    def lose(self, feed: str, number: int) -> None:
        """Delete a page by mistake."""
        log = self._feeds[feed]
        del log.pages[number]
        log.numbers.remove(number)

    def expire_some(self, now_ms: int, chosen: Callable[[], bool]) -> int:
        """TTL deletes some of the expired pages now, in no order; how many."""
        gone = 0
        for feed, log in self._feeds.items():
            for number, page in list(log.pages.items()):
                if 0 < page.expires_ms <= now_ms and chosen():
                    if number >= log.floor:
                        raise Broken(f"page {number} of {feed} expired, the floor is {log.floor}")
                    del log.pages[number]
                    gone += 1
            if len(log.pages) < len(log.numbers):
                log.numbers = sorted(log.pages)
        return gone


def rows_of(state: MemoryState, feed: str) -> Iterator[Row]:
    """Yield all rows, bucket by bucket."""
    for bucket in range(limits.BUCKETS):
        after: str | None = None
        while rows := state.read(feed, bucket, after):
            yield from rows
            after = rows[-1].key


class ReportingConsumers(MemoryConsumers):
    """Consumers that report each change to their observer."""

    def __init__(self) -> None:
        super().__init__()
        self.observers: dict[str, Callable[[Consumer, Change], None]] = {}

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        old = self.consumer(feed, name)
        written = super().write(feed, name, version, change)
        if written and old is not None and name in self.observers:
            self.observers[name](old, change)
        return written


class Lines:
    """Implements `Sockets`: the way from the feed to the simulated clients.

    A client that vanished swallows messages for a while; then it counts as gone. An unanswered
    message is *lost*: it may `arrive` after later ones. A process that knows of it must not send
    more; one that takes over from a crashed process does not know.
    """

    def __init__(
        self,
        busy: Callable[[str], bool],
        lost: Callable[[str, str], bool],
        sender: Callable[[], object],
        saw: Callable[[str], None],
    ) -> None:
        self.heard: dict[str, OnMessage] = {}
        self.closed: dict[str, Callable[[], None]] = {}
        self.swallowing: set[str] = set()
        self.subscribed: Counter[str] = Counter()  # by connection, how often
        self._busy, self._lost, self._sender, self._saw = busy, lost, sender, saw
        self._doubted: dict[str, object] = {}  # by connection, the sender that knows of a loss

    def send(self, connection_id: str, frame: str) -> Outcome:
        if connection_id in self.swallowing:
            return Outcome.SENT
        if connection_id not in self.heard:
            self._saw("socket was gone")
            return Outcome.GONE
        if self._doubted.get(connection_id) is self._sender():
            raise Broken(f"{connection_id} is sent more, and may receive an earlier message later")
        if self._busy(connection_id):
            return Outcome.BUSY
        if self._lost(connection_id, frame):
            self._doubted[connection_id] = self._sender()
            return Outcome.UNKNOWN
        self.heard[connection_id](frame)
        return Outcome.SENT

    def arrive(self, connection_id: str, frame: str, subscription: int) -> None:
        """Deliver an unanswered frame, when the connection may have received more, or be closed.

        A client has its next subscription on another connection (8.8), where a frame of the one
        before does not arrive.
        """
        if connection_id in self.heard and self.subscribed[connection_id] == subscription:
            self._saw("frame came late")
            self.heard[connection_id](frame)

    def close(self, connection_id: str) -> None:
        self.heard.pop(connection_id, None)
        self.swallowing.discard(connection_id)
        closed = self.closed.pop(connection_id, None)
        if closed is not None:
            self._saw("connection was cut")
            closed()


def _check_moves(followers: MemoryFollowers) -> None:
    """Break the seed if a checkpoint moves back: pages would be handled and sent again."""
    move = followers.move

    def checked(follower: StoredFollower, saved: Saved) -> None:
        if saved[0] < follower.saved[0]:
            raise Broken(f"a checkpoint moves from {follower.saved[0]} back to {saved[0]}")
        move(follower, saved)

    followers.move = checked  # type: ignore[method-assign]


class Stores:
    """One of each, by the names of `tidings.assembly.stores`."""

    def __init__(
        self,
        log: ReportingLog,
        followers: MemoryFollowers,
        connections: type[MemoryConnections],
        sockets: Lines,
        state: MemoryState,
    ) -> None:
        self.log, self.followers, self.state = log, followers, state
        self.feed_records = NoFeedStore()
        _check_moves(followers)
        self.removed_parents = MemoryRemovedParents()
        self.claims = MemoryClaims()
        self.renewals = rounds_in(MemoryRecords())
        self.consumers = ReportingConsumers()
        self.counters = MemoryCounters()
        self.tombstones = MemoryTombstones()
        self.sums = MemorySums()
        self.inbox = MemoryInbox()
        self.subscriptions = MemorySubscriptions()
        self.registry = MemoryRegistry()
        self.relays = MemoryRelays(log)
        self.documents, self.key_usage = MemoryOperatorDocuments(), MemoryKeyUsage()
        self.connections = connections(self.inbox, self.subscriptions, self.registry)
        self.sockets = sockets
        self.due_feeds = MemoryDueFeeds()
        log.mark = self.consumers.records.mark = self.documents.records.mark = self.due_feeds.mark
