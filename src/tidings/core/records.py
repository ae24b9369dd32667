"""Records, in which a host stores everything but pages, rows, connections, counters and files.

A record has fields, under a feed, a kind and a name. The field `version` of most kinds counts the
writes, so that concurrent changes cannot undo each other. A host has one `RecordStore` for all
kinds. The stores of the core (such as `auth.keys.KeyStore`) are views on it: they convert the
fields to values with a `Layout`.

Records are stored for years, so the names of kinds and fields must not change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tidings.core import limits
from tidings.core.errors import Unavailable

Value = TypeVar("Value")
Result = TypeVar("Result")
Fields = Mapping[str, Any]  # texts, numbers, booleans, and lists and mappings with texts of them
Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # write a value as a field, and read it
NOTHING: Fields = MappingProxyType({})
HOST_RECORDS = ""  # in place of a feed, for records that belong to the host


class Kind(NamedTuple):
    """A kind of records.

    *partition* is its name in the keys of DynamoDB; *name* if it is empty. If *is_due* is True, a
    change makes the sweep visit the feed. If *is_together* is True, the kind has one record for
    each feed, which no query finds; DynamoDB has those of all feeds in one partition.
    """

    name: str
    partition: str = ""
    is_due: bool = False
    is_together: bool = False

    @property
    def prefix(self) -> str:
        return self.partition or self.name


class Record(NamedTuple):
    name: str
    fields: Fields


class Write(NamedTuple):
    """One write of a transaction: set *fields*, or delete the record if *fields* is None.

    A field that is None is removed, and a field that is not named stays as it is. So the fields of
    a newer release survive. Without any field, the write only checks *expected*: the fields that
    the record must have. A field that is expected as None must be missing, as in a record that does
    not exist. *of* is as in `RecordStore.get`. The record expires at *expires_ms*; 0 means never.
    """

    kind: Kind
    name: str
    fields: Fields | None
    expected: Fields = NOTHING
    of: str = ""
    expires_ms: int = 0

    def is_expected(self, stored: Fields) -> bool:
        """Return True if a record with the fields *stored* is as expected; a missing one has {}."""
        return all(stored.get(name) == each for name, each in self.expected.items())

    def applied(self, stored: Fields) -> dict[str, Any]:
        """Return the fields of a record with the fields *stored* after this write of fields."""
        changed = {**stored, **(self.fields or {})}
        return {name: each for name, each in changed.items() if each is not None}


def to_json(fields: Fields) -> str:
    """Return *fields* as the JSON in which data files store them."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


class RecordStore(Protocol):
    """The records of a host. A record that has expired is never returned.

    A record belongs to a feed, or to the host (`HOST_RECORDS`). *of* is the name of the object in
    the feed to which it belongs, such as a consumer.
    """

    def get(
        self, feed: str, kind: Kind, name: str = "", of: str = "", *, eventual: bool = False
    ) -> Record | None:
        """Return the record, strongly consistent.

        With *eventual*, the record may be as old as a second, at half the price; but a record that
        was created before the call is found.
        """

    def query(
        self,
        feed: str,
        kind: Kind,
        of: str = "",
        *,
        after: str = "",
        limit: int = 0,
        newest: bool = False,
    ) -> Iterator[Record]:
        """Yield at most *limit* records with names above *after*, in the order of their names.

        The limit 0 means all. With *newest*, begin with the last name, and read eventually.
        """

    def write(self, feed: str, writes: Sequence[Write], *, mark: bool = True) -> bool:
        """Execute all of *writes* and return True, or none of them if a record is not as expected.

        Without *mark*, a change of a kind that is due need not make the sweep visit the feed.
        """


class Layout(Generic[Value]):
    """The fields of a record in which values of the dataclass *of* are stored.

    *names* are the names of the fields, if they differ from those of the class. *codecs* write and
    read the fields with other values than texts, numbers, booleans, enums and tuples of them. A
    field with its default is not stored, unless it is in *always*. The attributes *feed* and *name*
    of a value are not fields, but the feed and the name of the record. The attributes *without* are
    not stored.
    """

    def __init__(
        self,
        of: type[Value],
        names: Mapping[str, str] | None = None,
        codecs: Mapping[str, Codec] | None = None,
        *,
        feed: str = "",
        name: str = "",
        always: Collection[str] = (),
        without: Collection[str] = (),
    ) -> None:
        names, codecs = names or {}, codecs or {}
        self.of, self.key = of, (feed, name)
        members: Any = fields(of)  # type: ignore[arg-type]
        self._members = [
            (
                each.name,
                names.get(each.name, each.name),
                MISSING if each.name in always else each.default,
                codecs.get(each.name) or _codec(each.default),
            )
            for each in members
            if each.name not in (*self.key, *without)
        ]
        self.is_versioned = any(each.name == "version" for each in members)
        self._name_codec = codecs.get(name) or _PLAIN

    def encode(self, value: Value) -> dict[str, Any]:
        """Return the fields of *value*; None for those with their defaults."""
        found: dict[str, Any] = {}
        for member, name, default, (write, _) in self._members:
            content = getattr(value, member)
            found[name] = None if content == default else write(content)
        return found

    def decode(self, found: Fields, feed: str = "", name: str = "") -> Value:
        given = {
            member: read(found[stored])
            for member, stored, _, (_, read) in self._members
            if stored in found
        }
        key = zip(self.key, (feed, self._name_codec[1](name)), strict=True)
        return self.of(**given, **{member: each for member, each in key if member})

    def name_of(self, value: Value) -> str:
        """Return the name of the record of *value*."""
        written: str = self._name_codec[0](getattr(value, self.key[1])) if self.key[1] else ""
        return written

    @property
    def nested(self) -> Codec:
        """Return the codec of a field that has a value of this layout."""
        return self._write_nested, self.decode

    @property
    def nested_tuple(self) -> Codec:
        """Return the codec of a field that has a tuple of values of this layout."""
        return tuple_codec(self.nested)

    def _write_nested(self, value: Value) -> dict[str, Any]:
        return {name: each for name, each in self.encode(value).items() if each is not None}


_PLAIN: Codec = (lambda value: value, lambda value: value)


def _codec(default: Any) -> Codec:
    """Return the codec of a field with this default, which shows its type."""
    if isinstance(default, Enum):
        return enum_codec(type(default))
    return (list, tuple) if isinstance(default, tuple) else _PLAIN


def enum_codec(of: type[Enum]) -> Codec:
    return (lambda member: member.value, of)


def tuple_codec(of: Codec) -> Codec:
    """Return the codec of a field that is a tuple; *of* is the codec of its members."""
    write, read = of
    return (
        lambda values: [write(each) for each in values],
        lambda values: tuple(read(each) for each in values),
    )


class Records(Generic[Value]):
    """The records of one *kind*, as values with *layout*."""

    def __init__(self, store: RecordStore, kind: Kind, layout: Layout[Value]) -> None:
        self.store, self.kind, self.layout = store, kind, layout

    def get(
        self, feed: str, name: str = "", of: str = "", *, eventual: bool = False
    ) -> Value | None:
        """Return the value, or None if it does not exist; see `RecordStore.get`."""
        found = self.store.get(feed, self.kind, name, of, eventual=eventual)
        return None if found is None else self.layout.decode(found.fields, feed, found.name)

    def all(
        self, feed: str, of: str = "", *, after: str = "", limit: int = 0, newest: bool = False
    ) -> Iterator[Value]:
        """Yield values; see `RecordStore.query`."""
        found = self.store.query(feed, self.kind, of, after=after, limit=limit, newest=newest)
        return (self.layout.decode(each.fields, feed, each.name) for each in found)

    def put(
        self, value: Value, name: str | None = None, of: str = "", expires_ms: int = 0
    ) -> Write:
        """Return the write of *value* over its version, as the next version.

        A value without a version is written over any record.
        """
        name = self.layout.name_of(value) if name is None else name
        if not self.layout.is_versioned:
            return Write(self.kind, name, self.layout.encode(value), NOTHING, of, expires_ms)
        version = value.version  # type: ignore[attr-defined]
        stored = self.layout.encode(replace(value, version=version + 1))  # type: ignore[type-var]
        return Write(self.kind, name, stored, expected_version(version), of, expires_ms)

    def save(self, feed: str, value: Value, name: str | None = None, expires_ms: int = 0) -> bool:
        """Write *value* and return True if the stored version is its version, otherwise False."""
        return self.store.write(feed, [self.put(value, name, expires_ms=expires_ms)])


def expected_version(version: int) -> Fields:
    """Return the expectation of a write over *version*; 0 is that of a missing record."""
    return {"version": version or None}


def until_saved(attempt: Callable[[], Result | None], what: str) -> Result:
    """Return the first result of *attempt* that is not None.

    *attempt* reads a value, changes it, and saves it if it is unchanged in the store. It returns
    None if another process has saved the value in the meantime.

    Raises:
        Unavailable: other processes saved the value at each attempt; the error begins with *what*.
    """
    for _ in range(limits.SAVE_ATTEMPTS_MAX):
        result = attempt()
        if result is not None:
            return result
    raise Unavailable(f"{what} kept changing; try again")
