"""Settings and records by name: profiles, keys, documents, consumers, relays, clusters."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock, RLock

from tests.fakes.log import MemoryLog
from tests.fakes.records import MemoryRecords
from tests.fakes.state import MemoryRemovedParents
from tidings.core.auth.keys import KeyStore
from tidings.core.changeagent.documents import OperatorDocuments
from tidings.core.consumers.consumer import ConsumerStore, Parked
from tidings.core.durable_streams.stream import Extent, Stream
from tidings.core.erasure.records import ErasureStore
from tidings.core.feeds.records import FeedStore
from tidings.core.model.cursors import Place
from tidings.core.model.pages import Page
from tidings.core.replication.election import Coordinator
from tidings.core.replication.relay import Relay, RelayStore
from tidings.core.settings.profiles import ProfileStore
from tidings.core.state.removed_parents import RemovedParents


class MemoryProfiles(ProfileStore):
    def __init__(self) -> None:
        self.records = MemoryRecords()
        super().__init__(self.records)


class MemoryKeys(KeyStore):
    def __init__(self) -> None:
        super().__init__(MemoryRecords())


class MemoryOperatorDocuments(OperatorDocuments):
    def __init__(self) -> None:
        self.records = MemoryRecords()
        super().__init__(self.records)


class MemoryStreams:
    """Implements `StreamStore`."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], Stream] = {}
        self._extents: dict[tuple[str, str], list[Extent]] = {}
        self._lock = Lock()

    def stream(self, feed: str, name: str) -> Stream | None:
        with self._lock:
            return self._streams.get((feed, name))

    def write(self, feed: str, stream: Stream, extent: Extent | None = None) -> None:
        with self._lock:
            self._streams[feed, stream.name] = stream
            if extent is not None:
                self._extents.setdefault((feed, stream.name), []).append(extent)

    def remove(self, feed: str, name: str) -> None:
        with self._lock:
            self._streams.pop((feed, name), None)
            self._extents.pop((feed, name), None)

    def extents(self, feed: str, name: str, after: Place, limit: int) -> list[Extent]:
        at = after.page, after.slot
        with self._lock:
            extents = self._extents.get((feed, name), ())
            return [each for each in extents if (each.last.page, each.last.slot) > at][:limit]


class MemoryFeeds(FeedStore):
    def __init__(self) -> None:
        super().__init__(MemoryRecords())


class MemoryErasures(ErasureStore):
    def __init__(self) -> None:
        super().__init__(MemoryRecords())


class MemoryRewrites:
    """Implements `RewriteStore` on other fakes."""

    def __init__(
        self, log: MemoryLog, removed_parents: MemoryRemovedParents, consumers: ConsumerStore
    ) -> None:
        self._log, self._removed_parents, self._consumers = log, removed_parents, consumers

    def rewrite_page(self, feed: str, page: Page, body: str | bytes) -> bool:
        return self._log.rewrite(feed, page, body)

    def rewrite_removed_parents(
        self, feed: str, removed: RemovedParents, body: str | bytes
    ) -> bool:
        return self._removed_parents.rewrite(feed, removed, body)

    def rewrite_parked(self, feed: str, name: str, parked: Parked, changed: Parked) -> bool:
        return self._consumers.rewrite_parked(feed, name, parked, changed)


class MemoryConsumers(ConsumerStore):
    def __init__(self) -> None:
        self.records = MemoryRecords()
        super().__init__(self.records)


class MemoryRelays(RelayStore):
    records: MemoryRecords

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(MemoryRecords())
        self._log, self._lock = log, RLock()

    def write(self, before: Relay, after: Relay) -> bool:
        with self._lock:
            return super().write(before, after)

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        with self._lock:
            if self.relay(after.feed).version != before.version:
                return False
            operations = after.counts.operations - before.counts.operations
            entered = self._log.enter(
                after.feed, pages, head=after.checkpoint, operations=operations
            )
            return entered and self.write(before, after)


class MemoryCoordinator(Coordinator):
    def __init__(self) -> None:
        super().__init__(MemoryRecords())
