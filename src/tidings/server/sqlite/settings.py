"""Owners' and operators' settings on SQLite: profiles, keys, documents, named consumers, relays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.changeagent.documents import OperatorDocument
from tidings.core.durable_streams.stream import Extent
from tidings.core.model.cursors import Place
from tidings.core.replication.election import LeaderLease
from tidings.core.replication.relay import Relay
from tidings.core.settings.profiles import Profile, next_version
from tidings.server.sqlite.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.auth.keys import Key
    from tidings.core.consumers.consumer import Change, Consumer, Note, Parked
    from tidings.core.durable_streams.stream import Stream
    from tidings.core.model.pages import Page
    from tidings.core.replication.election import Member
    from tidings.server.sqlite.database import Database
    from tidings.server.sqlite.documents import DocumentsOf
    from tidings.server.sqlite.log import SqliteLog


class SqliteProfiles:
    """Implements `ProfileStore`."""

    def __init__(self, documents: DocumentsOf) -> None:
        self._documents = documents("profile")

    def profile(self, feed: str) -> Profile:
        return self._documents.get(feed) or Profile()

    def save(self, feed: str, profile: Profile) -> bool:
        return self._documents.replace(feed, "", profile.version, next_version(profile))


class SqliteOperatorDocuments:
    """Implements `OperatorDocuments`."""

    def __init__(self, documents: DocumentsOf) -> None:
        self._documents = documents("operator-document")

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        return OperatorDocument(*(self._documents.get(feed, name) or ()))

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        version = operator_document.version
        stored = (operator_document.text, version + 1)
        return self._documents.replace(feed, name, version, stored)


class SqliteStreams:
    """Implements `StreamStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._streams = Documents(database, "durable-stream")

    def stream(self, feed: str, name: str) -> Stream | None:
        stream: Stream | None = self._streams.get(feed, name)
        return stream

    def write(self, feed: str, stream: Stream, extent: Extent | None = None) -> None:
        with self._database.transaction() as sql:
            self._streams.put(feed, stream.name, stream)
            if extent is not None:
                last, before = extent.last, extent.before
                sql.execute(
                    "INSERT INTO extents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (feed, stream.name, *_columns(last), *_columns(before)),
                )

    def remove(self, feed: str, name: str) -> None:
        with self._database.transaction() as sql:
            self._streams.remove(feed, name)
            sql.execute("DELETE FROM extents WHERE feed = ? AND stream = ?", (feed, name))

    def extents(self, feed: str, name: str, after: Place, limit: int) -> list[Extent]:
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT before_page, before_slot, before_seconds, page, slot, seconds FROM extents"
                " WHERE feed = ? AND stream = ? AND (page, slot) > (?, ?) ORDER BY page LIMIT ?",
                (feed, name, after.page, after.slot, limit),
            ).fetchall()
        return [Extent(Place(*row[:3]), Place(*row[3:])) for row in rows]


def _columns(place: Place) -> tuple[int, int, int]:
    return place.page, place.slot, place.seconds


class SqliteKeys:
    """Implements `KeyStore`."""

    def __init__(self, documents: DocumentsOf) -> None:
        self._documents = documents("key")

    def key(self, feed: str, name: str) -> Key | None:
        key: Key | None = self._documents.get(feed, name)
        return key

    def keys(self, feed: str) -> Iterator[Key]:
        return iter(self._documents.all(feed))

    def save(self, feed: str, key: Key) -> bool:
        stored = replace(key, version=key.version + 1)
        return self._documents.replace(feed, key.id, key.version, stored)


class SqliteConsumers:
    """Implements `ConsumerStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._consumers = Documents(database, "consumer")
        self._parked = Documents(database, "parked")
        self._notes = Documents(database, "notes")

    def consumer(self, feed: str, name: str) -> Consumer | None:
        consumer: Consumer | None = self._consumers.get(feed, name)
        return consumer

    def consumers(self, feed: str) -> Sequence[Consumer]:
        return self._consumers.all(feed)

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        with self._database.transaction():
            standing = self.consumer(feed, name)
            if (standing.version if standing else 0) != version:
                return False
            if change.consumer is None:
                self._consumers.remove(feed, name)
            else:
                self._consumers.put(feed, name, replace(change.consumer, version=version + 1))
            self._put_aside(feed, name, change)
            return True

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        by_id: dict[str, Parked] = {each.id: each for each in self._of(self._parked, feed, name)}
        return [parked for _, parked in sorted(by_id.items())]

    def notes(self, feed: str, name: str) -> Sequence[Note]:
        return self._of(self._notes, feed, name)[::-1]

    def _put_aside(self, feed: str, name: str, change: Change) -> None:
        if change.park is not None or change.drop:
            gone = {*change.drop, change.park.id if change.park else ""}
            kept = [each for each in self._of(self._parked, feed, name) if each.id not in gone]
            parked = (*kept, change.park) if change.park else tuple(kept)
            self._parked.put(feed, name, parked)
        if change.note is not None:
            notes = (*self._of(self._notes, feed, name), change.note)
            self._notes.put(feed, name, notes[-limits.NOTES_MAX :])

    @staticmethod
    def _of(documents: Documents, feed: str, name: str) -> tuple[Any, ...]:
        fields: tuple[Any, ...] = documents.get(feed, name) or ()
        return fields


class SqliteRelays:
    """Implements `RelayStore`."""

    def __init__(self, database: Database, log: SqliteLog) -> None:
        self._database, self._log = database, log
        self._documents = Documents(database, "relay")

    def relay(self, feed: str) -> Relay:
        return self._documents.get(feed) or Relay(feed)

    def relays(self) -> Sequence[Relay]:
        return self._documents.all()

    def write(self, before: Relay, after: Relay) -> bool:
        stored = replace(after, version=before.version + 1)
        return self._documents.replace(after.feed, "", before.version, stored)

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        operations = after.counts.operations - before.counts.operations
        with self._database.transaction():
            if self.relay(after.feed).version != before.version:
                return False
            entered = self._log.enter(
                after.feed, pages, head=after.checkpoint, operations=operations
            )
            return entered and self.write(before, after)


class SqliteUpstreams:
    """Implements `Upstreams` of `web.replication`; only the relay reads the password."""

    def __init__(self, database: Database) -> None:
        self._passwords = Documents(database, "upstream")

    def password(self, feed: str) -> str:
        """Return the password of the upstream; "" if none is set."""
        return self._passwords.get(feed) or ""

    def keep(self, feed: str, password: str) -> None:
        """Store *password*; "" stops sending one."""
        self._passwords.put(feed, "", password)


class SqliteCoordinator:
    """Implements `Coordinator`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seats = Documents(database, "leader-lease")
        self._members = Documents(database, "member")

    def leases(self, cluster: str) -> Sequence[LeaderLease]:
        return sorted(self._seats.all(cluster), key=lambda seat: int(seat.number))

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        name = str(after.number)
        with self._database.transaction():
            there = self._seats.get(after.cluster, name) or LeaderLease(after.cluster, after.number)
            if (there.term, there.until_ms) != (before.term, before.until_ms):
                return False
            self._seats.put(after.cluster, name, after)
            return True

    def announce(self, member: Member) -> None:
        self._members.put(member.cluster, member.address, member)

    def members(self, cluster: str) -> Sequence[Member]:
        return self._members.all(cluster)
