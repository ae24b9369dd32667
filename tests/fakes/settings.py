"""Settings and records by name: profiles, keys, documents, consumers, relays, clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Lock

from tests.fakes.due import mark_nothing
from tests.fakes.log import MemoryLog
from tests.fakes.state import MemoryRemovedParents
from tidings.core import limits
from tidings.core.auth.keys import Key
from tidings.core.changeagent.documents import OperatorDocument
from tidings.core.consumers.consumer import Change, Consumer, Note, Parked
from tidings.core.durable_streams.stream import Extent, Stream
from tidings.core.erasure.records import Erasure, Phase, sort_key
from tidings.core.feeds.records import FeedRecord
from tidings.core.model.cursors import Place
from tidings.core.model.pages import Page
from tidings.core.replication.election import LeaderLease, Member
from tidings.core.replication.relay import Relay
from tidings.core.settings.profiles import Profile, next_version
from tidings.core.state.removed_parents import RemovedParents


class MemoryProfiles:
    """Implements `ProfileStore`."""

    def __init__(self, mark: Callable[[str], object] = mark_nothing) -> None:
        self.mark = mark
        self._profiles: dict[str, Profile] = {}
        self._lock = Lock()

    def profile(self, feed: str) -> Profile:
        with self._lock:
            return self._profiles.get(feed, Profile())

    def save(self, feed: str, profile: Profile) -> bool:
        with self._lock:
            if self._profiles.get(feed, Profile()).version != profile.version:
                return False
            self.mark(feed)
            self._profiles[feed] = next_version(profile)
            return True


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


class MemoryKeys:
    """Implements `KeyStore`."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], Key] = {}
        self._lock = Lock()

    def key(self, feed: str, name: str) -> Key | None:
        with self._lock:
            return self._keys.get((feed, name))

    def keys(self, feed: str) -> Iterator[Key]:
        with self._lock:
            found = [key for (of, _), key in sorted(self._keys.items()) if of == feed]
        return iter(found)

    def save(self, feed: str, key: Key) -> bool:
        with self._lock:
            standing = self._keys.get((feed, key.id))
            if (standing.version if standing else 0) != key.version:
                return False
            self._keys[feed, key.id] = replace(key, version=key.version + 1)
            return True


class MemoryOperatorDocuments:
    """Implements `OperatorDocuments`."""

    def __init__(self, mark: Callable[[str], object] = mark_nothing) -> None:
        self.mark = mark
        self._operator_documents: dict[tuple[str, str], OperatorDocument] = {}
        self._lock = Lock()

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        with self._lock:
            return self._operator_documents.get((feed, name), OperatorDocument())

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        with self._lock:
            standing = self._operator_documents.get((feed, name), OperatorDocument())
            if standing.version != operator_document.version:
                return False
            self.mark(feed)
            self._operator_documents[feed, name] = OperatorDocument(
                operator_document.text, operator_document.version + 1
            )
            return True


class MemoryFeeds:
    """Implements `FeedStore`."""

    def __init__(self) -> None:
        self._records: dict[str, FeedRecord] = {}
        self._lock = Lock()

    def record(self, name: str) -> FeedRecord | None:
        with self._lock:
            return self._records.get(name)

    def records(self, after: str = "", limit: int = limits.FEEDS_LISTED) -> Sequence[FeedRecord]:
        with self._lock:
            return [each for name, each in sorted(self._records.items()) if name > after][:limit]

    def unfinished(self) -> Sequence[FeedRecord]:
        with self._lock:
            return [each for _, each in sorted(self._records.items()) if each.unfinished]

    def save(self, record: FeedRecord) -> bool:
        with self._lock:
            standing = self._records.get(record.name)
            if (standing.version if standing else 0) != record.version:
                return False
            self._records[record.name] = replace(record, version=record.version + 1)
            return True


class MemoryErasures:
    """Implements `ErasureStore`."""

    def __init__(self) -> None:
        self._erasures: dict[tuple[str, str], Erasure] = {}
        self._lock = Lock()

    def erasure(self, feed: str, erasure_id: str) -> Erasure | None:
        with self._lock:
            return self._erasures.get((feed, erasure_id))

    def erasures(
        self, feed: str, after: str = "", limit: int = limits.ERASURES_LISTED
    ) -> Sequence[Erasure]:
        with self._lock:
            found = [each for (of, _), each in self._erasures.items() if of == feed]
        found.sort(key=lambda each: sort_key(each.id))
        return [each for each in found if sort_key(each.id) > sort_key(after)][:limit]

    def unfinished(self, feed: str) -> Sequence[Erasure]:
        found = self.erasures(feed, limit=len(self._erasures))
        return [each for each in found if each.phase is not Phase.DONE]

    def save(self, feed: str, erasure: Erasure) -> bool:
        with self._lock:
            standing = self._erasures.get((feed, erasure.id))
            if (standing.version if standing else 0) != erasure.version:
                return False
            self._erasures[feed, erasure.id] = replace(erasure, version=erasure.version + 1)
            return True


class MemoryRewrites:
    """Implements `RewriteStore` on other fakes."""

    def __init__(
        self, log: MemoryLog, removed_parents: MemoryRemovedParents, consumers: MemoryConsumers
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


Name = tuple[str, str]  # the feed, and the name of a consumer


class MemoryConsumers:
    """Implements `ConsumerStore`."""

    def __init__(self, mark: Callable[[str], object] = mark_nothing) -> None:
        self.mark = mark
        self._consumers: dict[Name, Consumer] = {}
        self._parked: dict[Name, dict[str, Parked]] = {}
        self._notes: dict[Name, list[Note]] = {}
        self._lock = Lock()

    def consumer(self, feed: str, name: str) -> Consumer | None:
        with self._lock:
            return self._consumers.get((feed, name))

    def consumers(self, feed: str) -> Sequence[Consumer]:
        with self._lock:
            found = sorted(self._consumers.items())
        return [consumer for (of, _), consumer in found if of == feed]

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        key = feed, name
        with self._lock:
            standing = self._consumers.get(key)
            if (standing.version if standing else 0) != version:
                return False
            if not version or change.note is not None:
                self.mark(feed)
            self._consumers.pop(key, None)
            if change.consumer is not None:
                self._consumers[key] = replace(change.consumer, version=version + 1)
            self._put_aside(key, change)
            return True

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        with self._lock:
            return [found for _, found in sorted(self._parked.get((feed, name), {}).items())]

    def rewrite_parked(self, feed: str, name: str, parked: Parked, changed: Parked) -> bool:
        with self._lock:
            standing = self._parked.get((feed, name), {})
            if standing.get(parked.id) == parked:
                standing[parked.id] = changed
            return standing.get(parked.id) == changed

    def notes(self, feed: str, name: str) -> Sequence[Note]:
        with self._lock:
            return self._notes.get((feed, name), [])[: -limits.NOTES_MAX - 1 : -1]

    def _put_aside(self, key: Name, change: Change) -> None:
        parked = self._parked.setdefault(key, {})
        for each in change.drop:
            parked.pop(each, None)
        if change.park is not None:
            parked[change.park.id] = change.park
        if change.note is not None:
            self._notes.setdefault(key, []).append(change.note)


class MemoryRelays:
    """Implements `RelayStore`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._relays: dict[str, Relay] = {}
        self._lock = Lock()

    def relay(self, feed: str) -> Relay:
        with self._lock:
            return self._relays.get(feed, Relay(feed))

    def relays(self) -> Sequence[Relay]:
        with self._lock:
            return [relay for _, relay in sorted(self._relays.items())]

    def write(self, before: Relay, after: Relay) -> bool:
        with self._lock:
            return self._write(before, after)

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        with self._lock:
            if self._version(after.feed) != before.version:
                return False
            operations = after.counts.operations - before.counts.operations
            entered = self._log.enter(
                after.feed, pages, head=after.checkpoint, operations=operations
            )
            return entered and self._write(before, after)

    def _write(self, before: Relay, after: Relay) -> bool:
        if self._version(after.feed) != before.version:
            return False
        self._relays[after.feed] = replace(after, version=before.version + 1)
        return True

    def _version(self, feed: str) -> int:
        return self._relays.get(feed, Relay(feed)).version


class MemoryCoordinator:
    """Implements `Coordinator`."""

    def __init__(self) -> None:
        self._leases: dict[tuple[str, int], LeaderLease] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._lock = Lock()

    def leases(self, cluster: str) -> Sequence[LeaderLease]:
        with self._lock:
            return [lease for (of, _), lease in sorted(self._leases.items()) if of == cluster]

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        key = after.cluster, after.number
        with self._lock:
            there = self._leases.get(key, LeaderLease(*key))
            if (there.term, there.until_ms) != (before.term, before.until_ms):
                return False
            self._leases[key] = after
            return True

    def announce(self, member: Member) -> None:
        with self._lock:
            self._members[member.cluster, member.address] = member

    def members(self, cluster: str) -> Sequence[Member]:
        with self._lock:
            return [each for (of, _), each in sorted(self._members.items()) if of == cluster]
