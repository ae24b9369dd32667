"""
Values of the core as JSON documents, each with a version that guards its updates.

They are few per feed and read whole: profiles, keys, named consumers, relays and similar values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from tidings.core.auth import guard
from tidings.core.auth.keys import Key
from tidings.core.consumers.consumer import Consumer, Failure, Note, Parked
from tidings.core.consumers.position import Span
from tidings.core.durable_streams.stream import Producer, Stream
from tidings.core.maintenance.retention import Round
from tidings.core.model.cursors import Place, Replication, Since
from tidings.core.model.filters import Filter
from tidings.core.replication import relay
from tidings.core.replication.election import LeaderLease, Member
from tidings.core.replication.source import Role
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Ended, Resource
from tidings.core.state.tombstones import Remembered

if TYPE_CHECKING:
    from tidings.server.sqlite.database import Database

# The names stored in files; they stay when a class is renamed.
_TYPES: dict[str, type] = {
    "consumer": Consumer,
    "copy": relay.Copy,
    "counts": relay.Counts,
    "durable-producer": Producer,
    "durable-stream": Stream,
    "ended": Ended,
    "failure": Failure,
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
    "relay-condition": relay.Condition,
    "relay-wanted": relay.Wanted,
    "remembered": Remembered,
    "replication": Replication,
    "resource": Resource,
    "role": Role,
    "round": Round,
    "since": Since,
    "span": Span,
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}
_IS, _SET = "is", "set"


def to_json(value: object) -> str:
    """
    Return *value* as JSON: a dataclass or an enumeration of `_TYPES`, or one of JSON's own types.
    """
    return json.dumps(to_plain(value), ensure_ascii=False, separators=(",", ":"))


def from_json(text: str) -> Any:
    """Return the value that was passed to `to_json`; its sequences are tuples."""
    return from_plain(json.loads(text))


def to_plain(value: Any) -> Any:
    """Return *value* as JSON's own types."""
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
    """Return the fields that differ from their defaults, so that a new field needs no migration."""
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
    """The documents of one kind: `Documents`, or a client of a running server."""

    def get(self, feed: str, name: str = "") -> Any: ...

    def all(self, feed: str | None = None) -> Sequence[Any]: ...

    def replace(self, feed: str, name: str, version: int, value: object) -> bool: ...


DocumentsOf = Callable[[str], DocumentStore]  # of a kind


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
        """Return the documents of *feed* by name; None: of all feeds, by feed and name."""
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT body FROM documents WHERE kind = ? AND feed = coalesce(?, feed)"
                " ORDER BY feed, name",
                (self._kind, feed),
            ).fetchall()
        return [from_json(body) for (body,) in rows]

    def put(self, feed: str, name: str, value: object) -> None:
        """Store *value*, replacing any existing one."""
        with self._database.transaction() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, 0, ?)",
                (self._kind, feed, name, to_json(value)),
            )

    def replace(self, feed: str, name: str, version: int, value: object) -> bool:
        """
        Store *value* as version + 1 if the stored version is *version* (0: missing), else return
        False.
        """
        key = self._kind, feed, name
        with self._database.transaction() as sql:
            if not version:
                statement = "INSERT OR IGNORE INTO documents VALUES (?, ?, ?, 1, ?)"
                return sql.execute(statement, (*key, to_json(value))).rowcount == 1
            changed = sql.execute(
                "UPDATE documents SET version = version + 1, body = ?"
                " WHERE kind = ? AND feed = ? AND name = ? AND version = ?",
                (to_json(value), *key, version),
            )
            return changed.rowcount == 1

    def remove(self, feed: str, name: str) -> None:
        """Delete the document if it exists."""
        with self._database.transaction() as sql:
            sql.execute(
                "DELETE FROM documents WHERE kind = ? AND feed = ? AND name = ?",
                (self._kind, feed, name),
            )
