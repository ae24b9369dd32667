"""Values of the core as JSON documents. An update states the version that it replaces.

These values are profiles, keys, consumers, relays and the like. A feed has few of them, and each is
read as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from tidings.core import limits
from tidings.core.auth import guard
from tidings.core.auth.keys import Key
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.consumers.consumer import Consumer, Failure, Note, Parked
from tidings.core.consumers.position import Span
from tidings.core.durable_streams.stream import Extent, Producer, Stream
from tidings.core.erasure.records import Erasure, Phase, sort_key
from tidings.core.feeds.records import FeedRecord, Removal
from tidings.core.maintenance.retention import Round
from tidings.core.model.cursors import Place, Replication, Since
from tidings.core.model.feeds import HOST
from tidings.core.model.filters import Filter
from tidings.core.replication import relay
from tidings.core.replication.election import LeaderLease, Member
from tidings.core.replication.source import Role
from tidings.core.settings.profiles import Profile, next_version
from tidings.core.settings.values import Ended, Resource
from tidings.core.state.tombstones import Remembered
from tidings.server.sqlite.database import Database, in_transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from tidings.core.consumers.consumer import Change

# The names by which data files refer to classes. A name stays when its class is renamed.
_TYPES: dict[str, type] = {
    "consumer": Consumer,
    "copy": relay.Copy,
    "counts": relay.Counts,
    "durable-producer": Producer,
    "durable-stream": Stream,
    "ended": Ended,
    "erasure": Erasure,
    "erasure-phase": Phase,
    "failure": Failure,
    "feed": FeedRecord,
    "filter": Filter,
    "key": Key,
    "key-role": guard.Role,
    "leader-lease": LeaderLease,
    "member": Member,
    "note": Note,
    "parked": Parked,
    "place": Place,
    "profile": Profile,
    "relay": relay.Relay,
    "relay-condition": relay.RelayStatus,
    "relay-wanted": relay.Wanted,
    "remembered": Remembered,
    "removal": Removal,
    "replication": Replication,
    "resource": Resource,
    "role": Role,
    "round": Round,
    "since": Since,
    "span": Span,
}
_DUE = frozenset({"consumer", "erasure", "operator-document", "profile", "relay"})  # see `DueFeeds`
_NAMES = {type_: name for name, type_ in _TYPES.items()}
_IS, _SET = "is", "set"


def to_json(value: object) -> str:
    """Return *value* as JSON. It may consist of JSON's types and of the classes in `_TYPES`."""
    return json.dumps(to_plain(value), ensure_ascii=False, separators=(",", ":"))


def from_json(text: str) -> Any:
    """Return the value that was passed to `to_json`; its sequences are tuples."""
    return from_plain(json.loads(text))


def to_plain(value: Any) -> Any:
    """Return *value* converted to the types of JSON."""
    if isinstance(value, Enum):
        return {_IS: _NAMES[type(value)], "value": value.value}
    if is_dataclass(value) and not isinstance(value, type):
        return {_IS: _NAMES[type(value)], **_set_fields(value)}
    if isinstance(value, frozenset):
        return {_IS: _SET, "items": sorted((to_plain(each) for each in value), key=json.dumps)}
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    assert value is None or isinstance(value, bool | int | str), type(value)
    return value


def _set_fields(value: Any) -> dict[str, Any]:
    """Return the fields of *value* that differ from their defaults.

    Fields with their defaults are not stored, so a new field needs no migration.
    """
    return {
        each.name: to_plain(getattr(value, each.name))
        for each in fields(value)
        if each.default is MISSING or getattr(value, each.name) != each.default
    }


def from_plain(plain: Any) -> Any:
    """Return the value that was passed to `to_plain`; its sequences are tuples."""
    if isinstance(plain, list):
        return tuple(from_plain(each) for each in plain)
    if not isinstance(plain, dict):
        return plain
    name, rest = plain[_IS], {key: from_plain(each) for key, each in plain.items() if key != _IS}
    return frozenset(rest["items"]) if name == _SET else _TYPES[name](**rest)


class DocumentStore(Protocol):
    """The documents of one kind, in a database (`Documents`) or at a running server."""

    def get(self, feed: str, name: str = "") -> Any: ...

    def all(self, feed: str | None = None) -> Sequence[Any]: ...

    def replace(self, feed: str, name: str, version: int, value: object) -> bool: ...


DocumentsOf = Callable[[str], DocumentStore]  # returns the documents of the kind that is passed


class Documents:
    """The documents of one *kind*, by feed and name."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database, self._kind = database, kind

    def get(self, feed: str, name: str = "") -> Any:
        """Return the value; None if it is missing."""
        with self._database.reading() as sql:
            row = sql.execute(
                "SELECT body FROM documents WHERE kind = ? AND feed = ? AND name = ?",
                (self._kind, feed, name),
            ).fetchone()
        return from_json(row[0]) if row else None

    def all(self, feed: str | None = None) -> Sequence[Any]:
        """Return the documents of *feed* by name; for None, those of all feeds."""
        # One statement for both cases would not use the primary key.
        one, only = ((), "") if feed is None else ((feed,), " AND feed = ?")
        with self._database.reading() as sql:
            rows = sql.execute(
                f"SELECT body FROM documents WHERE kind = ?{only} ORDER BY feed, name",
                (self._kind, *one),
            ).fetchall()
        return [from_json(body) for (body,) in rows]

    def put(self, feed: str, name: str, value: object) -> None:
        """Store *value* in place of the existing document, if any."""
        columns = self._kind, feed, name, to_json(value)
        self._execute(feed, "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, 0, ?)", *columns)

    def replace(self, feed: str, name: str, version: int, value: object) -> bool:
        """Store *value* as version + 1 and return True if the stored version is *version*.

        Otherwise store nothing and return False.

        A document that is missing has version 0.
        """
        key, body = (self._kind, feed, name), to_json(value)
        if not version:
            insert = "INSERT OR IGNORE INTO documents VALUES (?, ?, ?, 1, ?)"
            return self._execute(feed, insert, *key, body) == 1
        update = (
            "UPDATE documents SET version = version + 1, body = ?"
            " WHERE kind = ? AND feed = ? AND name = ? AND version = ?"
        )
        return self._execute(feed, update, body, *key, version) == 1

    def remove(self, feed: str, name: str) -> None:
        """Delete the document if it exists."""
        delete = "DELETE FROM documents WHERE kind = ? AND feed = ? AND name = ?"
        self._execute(feed, delete, self._kind, feed, name)

    @in_transaction
    def _execute(self, sql: sqlite3.Connection, feed: str, statement: str, *values: object) -> int:
        """Execute *statement*, which changes *feed*; return the number of rows that it changed."""
        if self._kind in _DUE:
            self._database.changed_document(feed, self._kind)
        return sql.execute(statement, values).rowcount


_UNMARKED = """
SELECT DISTINCT feed FROM documents AS used
WHERE (kind = 'key' OR (kind = 'operator-document' AND name = ?)) AND NOT EXISTS (
    SELECT 1 FROM documents AS profile WHERE profile.kind = 'profile' AND profile.feed = used.feed
    AND instr(profile.body, '"closed":true'))
"""


def used_but_open(database: Database) -> list[str]:
    """Return feeds with keys or users, and without a profile that is closed; see `profiles.close`.

    Earlier releases did not close a feed when they stored a key or a user.
    """
    with database.reading() as sql:
        return [feed for (feed,) in sql.execute(_UNMARKED, (USERS,))]


def deleted_feeds(database: Database) -> list[str]:
    """Return the names of the feeds that were deleted, and not created again."""
    with database.reading() as sql:
        return [
            feed
            for (feed,) in sql.execute(
                "SELECT feed FROM documents WHERE kind = 'feed'"
                " AND instr(body, '\"is_live\":false') ORDER BY feed"
            )
        ]


def feeds_with_webhooks(database: Database) -> list[str]:
    """Return the feeds that have or had webhooks. They are found by an index of their own."""
    with database.reading() as sql:
        return [
            feed
            for (feed,) in sql.execute(
                "SELECT feed FROM documents WHERE kind = 'operator-document' AND name = 'webhooks'"
            )
        ]


class SqliteProfiles:
    """Implements `ProfileStore`.

    *host_passwords* are the passwords in the options of this process, which also open the host.
    They are not stored, so that they end with the process.
    """

    def __init__(self, documents: DocumentsOf) -> None:
        self._documents = documents("profile")
        self.host_passwords = Profile()

    def profile(self, feed: str) -> Profile:
        profile = self._documents.get(feed) or Profile()
        if feed != HOST or not self.host_passwords.is_protected:
            return profile
        more = self.host_passwords
        return replace(
            profile,
            read_passwords=profile.read_passwords + more.read_passwords,
            ingest_passwords=profile.ingest_passwords + more.ingest_passwords,
        )

    def save(self, feed: str, profile: Profile) -> bool:
        if feed == HOST:
            more = self.host_passwords
            profile = replace(
                profile,
                read_passwords=_without(profile.read_passwords, more.read_passwords),
                ingest_passwords=_without(profile.ingest_passwords, more.ingest_passwords),
            )
        return self._documents.replace(feed, "", profile.version, next_version(profile))


def _without(passwords: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in passwords if each not in others)


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

    @in_transaction
    def write(
        self, sql: sqlite3.Connection, feed: str, stream: Stream, extent: Extent | None = None
    ) -> None:
        self._streams.put(feed, stream.name, stream)
        if extent is not None:
            last, before = extent.last, extent.before
            sql.execute(
                "INSERT INTO extents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (feed, stream.name, *_columns(last), *_columns(before)),
            )

    @in_transaction
    def remove(self, sql: sqlite3.Connection, feed: str, name: str) -> None:
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


class SqliteErasures:
    """Implements `ErasureStore`.

    Records in the phase DONE are documents of another kind, so that they are not read with others.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unfinished = Documents(database, "erasure")
        self._done = Documents(database, "erasure-done")

    def erasure(self, feed: str, erasure_id: str) -> Erasure | None:
        name = sort_key(erasure_id)
        erasure: Erasure | None = self._unfinished.get(feed, name) or self._done.get(feed, name)
        return erasure

    def erasures(
        self, feed: str, after: str = "", limit: int = limits.ERASURES_LISTED
    ) -> Sequence[Erasure]:
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT body FROM documents WHERE kind IN ('erasure', 'erasure-done')"
                " AND feed = ? AND name > ? ORDER BY name LIMIT ?",
                (feed, sort_key(after), limit),
            ).fetchall()
        return [from_json(body) for (body,) in rows]

    def unfinished(self, feed: str) -> Sequence[Erasure]:
        return self._unfinished.all(feed)

    @in_transaction
    def save(self, _: sqlite3.Connection, feed: str, erasure: Erasure) -> bool:
        standing = self.erasure(feed, erasure.id)
        if (standing.version if standing else 0) != erasure.version:
            return False
        name, stored = sort_key(erasure.id), replace(erasure, version=erasure.version + 1)
        if erasure.phase is Phase.DONE:
            self._unfinished.remove(feed, name)
            self._done.put(feed, name, stored)
        else:
            self._unfinished.put(feed, name, stored)
        return True


class SqliteFeeds:
    """Implements `FeedStore`.

    A record is a document of the kind `feed`. A document of the kind `feed-removal` marks a record
    with an unfinished removal, so that a search for them does not read the others.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records = Documents(database, "feed")
        self._marks = Documents(database, "feed-removal")

    def record(self, name: str) -> FeedRecord | None:
        record: FeedRecord | None = self._records.get(name)
        return record

    def records(self, after: str = "", limit: int = limits.FEEDS_LISTED) -> Sequence[FeedRecord]:
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT body FROM documents WHERE kind = 'feed' AND feed > ? ORDER BY feed LIMIT ?",
                (after, limit),
            ).fetchall()
        return [from_json(body) for (body,) in rows]

    def unfinished(self) -> Sequence[FeedRecord]:
        records = [self.record(name) for name in self._marks.all()]
        return [record for record in records if record is not None]

    @in_transaction
    def save(self, _: sqlite3.Connection, record: FeedRecord) -> bool:
        stored = replace(record, version=record.version + 1)
        if not self._records.replace(record.name, "", record.version, stored):
            return False
        if record.unfinished:
            self._marks.put(record.name, "", record.name)
        else:
            self._marks.remove(record.name, "")
        self._database.on_commit(self._database.steps.feeds_changed)
        return True


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

    @in_transaction
    def write(
        self, _: sqlite3.Connection, feed: str, name: str, version: int, change: Change
    ) -> bool:
        current = self.consumer(feed, name)
        if (current.version if current else 0) != version:
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

    @in_transaction
    def rewrite_parked(
        self, _: sqlite3.Connection, feed: str, name: str, parked: Parked, changed: Parked
    ) -> bool:
        """See `RewriteStore`."""
        messages = self._of(self._parked, feed, name)
        if parked in messages:
            messages = tuple(changed if each == parked else each for each in messages)
            self._parked.put(feed, name, messages)
        return changed in messages

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


class SqliteUpstreams:
    """Implements `RelayPasswords`. A document has the password that a relay sends upstream."""

    def __init__(self, database: Database) -> None:
        self._passwords = Documents(database, "upstream")

    def password(self, feed: str) -> str:
        """Return the password for the upstream of *feed*; "" if no password is set."""
        return self._passwords.get(feed) or ""

    def keep(self, feed: str, password: str) -> None:
        """Store *password* for the upstream of *feed*; with "", the relay sends no password."""
        self._passwords.put(feed, "", password)


class SqliteCoordinator:
    """Implements `Coordinator`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._leader_leases = Documents(database, "leader-lease")
        self._members = Documents(database, "member")

    def leases(self, cluster: str) -> Sequence[LeaderLease]:
        return sorted(self._leader_leases.all(cluster), key=lambda lease: int(lease.number))

    @in_transaction
    def take(self, _: sqlite3.Connection, before: LeaderLease, after: LeaderLease) -> bool:
        name = str(after.number)
        there = self._leader_leases.get(after.cluster, name) or LeaderLease(
            after.cluster, after.number
        )
        if (there.term, there.until_ms) != (before.term, before.until_ms):
            return False
        self._leader_leases.put(after.cluster, name, after)
        return True

    def announce(self, member: Member) -> None:
        self._members.put(member.cluster, member.address, member)

    def members(self, cluster: str) -> Sequence[Member]:
        return self._members.all(cluster)
