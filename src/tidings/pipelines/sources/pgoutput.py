"""
Decode the messages of PostgreSQL's output plugin `pgoutput`, version 1.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

Values = dict[str, bytes | None]  # by column, as text; unchanged values may be missing


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    oid: int


@dataclass(frozen=True, slots=True)
class Changed:
    """
    A changed row: *old* is its previous key or row, if sent, and *new* its current values.

    *new* is None if the row was deleted. *whole* is True if *new* has all values.
    """

    relation: int
    old: Values | None
    new: Values | None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Truncated:
    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The end of a transaction; the next one begins after *end*, an LSN."""

    end: str


@dataclass(slots=True)
class Decoder:
    """A decoder of one stream. The server sends the *relations* before their first row."""

    relations: dict[int, tuple[Column, ...]] = field(default_factory=dict)

    def decode(self, message: bytes) -> Changed | Truncated | Committed | None:
        """Decode *message*; return None for messages that are not needed."""
        kind, rest = message[:1], _Bytes(message, 1)
        match kind:
            case b"R":
                self._relation(rest)
            case b"I":
                return self._inserted(rest)
            case b"U":
                return self._updated(rest)
            case b"D":
                return self._deleted(rest)
            case b"T":
                return _truncated(rest)
            case b"C":
                return _committed(rest)
        return None

    def _relation(self, rest: _Bytes) -> None:
        oid = rest.number("I")
        rest.text(), rest.text(), rest.number("B")  # schema, table, replica identity
        columns = []
        for _ in range(rest.number("H")):
            rest.number("B")
            name, kind, _ = rest.text(), rest.number("I"), rest.number("I")
            columns.append(Column(name, kind))
        self.relations[oid] = tuple(columns)

    def _inserted(self, rest: _Bytes) -> Changed:
        oid, _ = rest.number("I"), rest.take(1)
        new, whole = self._tuple(oid, rest)
        return Changed(oid, None, new, whole)

    def _updated(self, rest: _Bytes) -> Changed:
        oid, mark, old = rest.number("I"), rest.take(1), None
        if mark != b"N":
            old, _ = self._tuple(oid, rest)
            rest.take(1)
        new, whole = self._tuple(oid, rest)
        return Changed(oid, old, new, whole)

    def _deleted(self, rest: _Bytes) -> Changed:
        oid, _ = rest.number("I"), rest.take(1)
        old, _ = self._tuple(oid, rest)
        return Changed(oid, old, None)

    def _tuple(self, oid: int, rest: _Bytes) -> tuple[Values, bool]:
        values: Values = {}
        count = rest.number("H")
        for column in self.relations[oid][:count]:
            match rest.take(1):
                case b"n":
                    values[column.name] = None
                case b"t":
                    values[column.name] = rest.take(rest.number("I"))
        return values, len(values) == count


class _Bytes:
    """A buffer that is read from the front."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def number(self, kind: str) -> int:
        """Return a big-endian unsigned number: B one byte, H two, I four, Q eight."""
        number: int = struct.unpack_from(f">{kind}", self._data, self._at)[0]
        self._at += struct.calcsize(kind)
        return number

    def text(self) -> str:
        """Return the text before the next zero byte."""
        end = self._data.index(0, self._at)
        text, self._at = self._data[self._at : end].decode(), end + 1
        return text


def _truncated(rest: _Bytes) -> Truncated:
    count, _ = rest.number("I"), rest.number("B")
    return Truncated(tuple(rest.number("I") for _ in range(count)))


def _committed(rest: _Bytes) -> Committed:
    rest.number("B"), rest.number("Q")
    end = rest.number("Q")
    return Committed(f"{end >> 32:X}/{end & 0xFFFFFFFF:X}")
