"""Convert the documents of data files of earlier releases to records.

A document is JSON in which each object names its class.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidings.core.auth import guard
from tidings.core.auth.keys import Key, KeyStore
from tidings.core.changeagent.documents import OperatorDocument, OperatorDocuments
from tidings.core.consumers.consumer import Change, Consumer, ConsumerStore, Failure, Note, Parked
from tidings.core.consumers.position import Span
from tidings.core.durable_streams.stream import Producer, Stream, streams_in
from tidings.core.erasure.records import Erasure, ErasureStore, Phase
from tidings.core.feeds.records import FeedRecord, FeedStore, Removal
from tidings.core.maintenance.retention import Round, rounds_in
from tidings.core.model.cursors import Place, Replication, Since
from tidings.core.model.filters import Filter
from tidings.core.records import HOST_RECORDS, Kind, Write, to_json
from tidings.core.replication import relay
from tidings.core.replication.election import Coordinator, LeaderLease, Member
from tidings.core.replication.relay import RelayPasswords
from tidings.core.replication.source import Role
from tidings.core.settings.profiles import Profile, ProfileStore
from tidings.core.settings.values import Ended, Resource
from tidings.core.state.tombstones import Remembered, TombstoneStore

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

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


def _value_of(plain: Any) -> Any:
    """Return the value of a document, or of a part of it; its sequences are tuples."""
    if isinstance(plain, list):
        return tuple(_value_of(each) for each in plain)
    if not isinstance(plain, dict):
        return plain
    rest = {key: _value_of(each) for key, each in plain.items()}
    name = rest.pop("is")
    return frozenset(rest["items"]) if name == "set" else _TYPES[name](**rest)


class _Converted:
    """Implements the writes of `RecordStore` in an open transaction of *sql*."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql

    def write(self, feed: str, writes: Sequence[Write], *, mark: bool = True) -> bool:
        for each in writes:
            if not each.fields:
                continue
            key = each.kind.name, feed, each.of, each.name
            row = (*key, to_json(each.applied({})), each.expires_ms)
            self._sql.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", row)
        return True


def _before(value: Any) -> Any:
    """Return *value* with the version over which it was written."""
    return replace(value, version=value.version - 1)


# How the documents of each kind are written as records, by feed and name.
_CONVERSIONS: dict[str, Callable[[Any, str, str, Any], object]] = {
    "consumer": lambda records, feed, _, value: ConsumerStore(records).write(
        feed, value.name, value.version - 1, Change(value)
    ),
    "erasure": lambda records, feed, _, value: ErasureStore(records).save(feed, _before(value)),
    "erasure-done": lambda records, feed, _, value: ErasureStore(records).save(
        feed, _before(value)
    ),
    "feed": lambda records, _, name, value: FeedStore(records).save(_before(value)),
    "feed-removal": lambda *_: None,  # written with the feed
    "parked": lambda records, feed, name, value: [
        ConsumerStore(records).write(feed, name, 0, Change(None, park=each)) for each in value
    ],
    "notes": lambda records, feed, name, value: [
        ConsumerStore(records).write(feed, name, at, Change(None, each))
        for at, each in enumerate(value)
    ],
    "tombstones": lambda records, feed, _, value: TombstoneStore(records).remember(
        feed, None, value
    ),
    "relay": lambda records, feed, _, value: records.write(
        feed, [relay.relay_write(_before(value), value)], mark=False
    ),
    "upstream": lambda records, feed, _, value: RelayPasswords(records).keep(feed, value),
    "leader-lease": lambda records, _, name, value: Coordinator(records).take(value, value),
    "member": lambda records, _, name, value: Coordinator(records).announce(value),
    "vacuum": lambda records, *_: records.write(
        HOST_RECORDS, [Write(Kind("vacuum"), "", {"due": True})]
    ),
    "durable-stream": lambda records, feed, _, value: streams_in(records).save(feed, value),
    "renewal": lambda records, feed, _, value: rounds_in(records).save(feed, value),
    "key": lambda records, feed, _, key: KeyStore(records).save(feed, _before(key)),
    "operator-document": lambda records, feed, name, value: OperatorDocuments(records).write(
        feed, name, _before(OperatorDocument(*value))
    ),
    "profile": lambda records, feed, _, value: ProfileStore(records).save(feed, _before(value)),
}


def convert(sql: sqlite3.Connection) -> None:
    """Convert the documents of all kinds that are records now, in a transaction of *sql*."""
    kinds = [*_CONVERSIONS]
    some = f"FROM documents WHERE kind IN ({', '.join('?' * len(kinds))})"
    found = sql.execute(f"SELECT kind, feed, name, body {some}", kinds).fetchall()
    for kind, feed, name, body in found:
        _CONVERSIONS[kind](_Converted(sql), feed, name, _value_of(json.loads(body)))
    if found:
        sql.execute(f"DELETE {some}", kinds)
