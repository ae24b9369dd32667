"""Read a table or view of PostgreSQL in chunks by its key, while others write to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import sleep
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from tidings.client.retries import Backoff
from tidings.core.errors import Rejected
from tidings.core.sync.dumps import dump_line
from tidings.lineage.datasets import Dataset
from tidings.pipelines.documents import Row, split_key, to_json_value
from tidings.pipelines.messages import WrongPipeline
from tidings.pipelines.postgres import (
    Rows,
    connect,
    fetch_rows,
    load_arrays,
    table_of,
    without_secrets,
)

STATEMENT_MS_MAX = 60_000  # a chunk takes milliseconds; a slower query lacks an index
CONNECT_S = 10  # an available server responds within 1 s
ATTEMPTS_MAX = 8  # attempts of a query, for one to two minutes: longer than a failover
_SETTINGS = f"""; SET statement_timeout = {STATEMENT_MS_MAX:d};
    SET default_transaction_read_only = on"""
_KIND = """SELECT relkind::text AS kind, pg_is_in_recovery() AS standby,
    greatest(reltuples, 0)::bigint AS rows FROM pg_class WHERE oid = to_regclass(%s)"""
_COLUMNS = """SELECT attname AS name, atttypid::regtype::text AS kind,
    array_position(indkey::int2[], attnum) AS place
    FROM pg_attribute LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
    ORDER BY array_position(indkey::int2[], attnum), attnum"""
_READ_LIVE = {"r": "a table", "p": "a table", "v": "a view", "f": "a foreign table"}
_SPACES = {"smallint": 15, "integer": 31, "bigint": 63}
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_TIME = "timestamp with time zone"
_TEXTS = ("text[]", "character varying[]")

ChunkEnd = list[Any]
# By the name of a column: its type, and its place in the primary key, or None if it has no place.
Kinds = dict[str, tuple[str, int | None]]


class BadTable(Exception):
    """The table cannot be compared with a feed; the message names the column and the rule."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a table. *rows* has the line (`dump_line`) of each object by its id.

    *end* is the key of the last row.
    """

    rows: dict[str, str]
    end: ChunkEnd


@dataclass(frozen=True, slots=True)
class Mapping:
    """The mapping of columns to fields of an operation.

    *key* names the columns that form the id; if *key* is empty, the columns of the primary key form
    the id. *changed* is the column with the time, and *parents* the column with the parents. If
    *data*, the data of an operation has all columns.
    """

    type: str = ""
    key: tuple[str, ...] = ()
    changed: str = ""
    parents: str = ""
    data: bool = False


class PostgresTable:
    """The rows of *table* at *dsn*.

    Each query sees the table as of the query's start, and locks nothing.

    Raises:
        BadTable: *table* is missing, or is neither a table nor a plain view, or the server is a
            standby, so that the rows may be outdated. Or a column is missing or has an unsupported
            type.
        psycopg.Error: the server cannot be reached, or rejects a query.
    """

    def __init__(self, dsn: str, table: str, mapping: Mapping) -> None:
        self._dsn, self._table, self._mapping = dsn, table, mapping
        self._connection: psycopg.Connection[Row] | None = None
        self.estimate = 0  # the number of rows by the server's statistics, or 0 if it is unknown
        try:
            self._open(table)
        except WrongPipeline as error:
            self.close()
            raise BadTable(str(error)) from None
        except BaseException:
            self.close()
            raise

    @property
    def type(self) -> str:
        return self._rows.type

    def dataset(self) -> Dataset:
        """Return the dataset of this table, for lineage."""
        return table_of(self._dsn, self._rows.name)

    def __str__(self) -> str:
        return f"table {self._rows.name} at {without_secrets(self._dsn)}"

    def chunk(self, after: ChunkEnd | None, most: int) -> Chunk | None:
        """Return up to *most* rows with keys after *after*, in the order of the keys.

        Return None if no row follows. If *after* is None, begin with the first row.
        """
        rows = self._query(*self._rows.page(after, most, self._columns))
        if not rows:
            return None
        return Chunk(self._lines(rows), self._rows.key_of(rows[-1]))

    def find(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the rows of the objects *ids*, in the form of `Chunk.rows`."""
        values = [each for each in map(self._values, ids) if each is not None]
        if not values:
            return {}
        rows = self._query(*self._rows.those(self._key_kinds, values, self._columns))
        return self._lines(rows)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _open(self, table: str) -> None:
        mapping, kinds = self._mapping, self._look_at(table)
        self._rows = Rows(table, mapping.key or _primary_key(table, kinds), mapping.type)
        self._key_kinds = [self._key_kind(kinds, name) for name in self._rows.keys]
        wanted = [*self._rows.keys, *filter(None, (mapping.changed, mapping.parents))]
        self._columns = () if mapping.data else tuple(dict.fromkeys(wanted))
        self._check(kinds, mapping.changed, (_TIME,), "the time of a row")
        self._check(kinds, mapping.parents, _TEXTS, "the parents of an object")

    def _look_at(self, table: str) -> Kinds:
        Rows(table, "any")  # reject an invalid name before the query
        found = self._query(_KIND, (table,))
        if not found:
            raise BadTable(f"{table} must be a table or a view, but nothing has this name")
        kind, self.estimate = found[0]["kind"], found[0]["rows"]
        if kind not in _READ_LIVE:
            raise BadTable(f"{table} is not a table or a plain view, so its rows may be outdated")
        if found[0]["standby"]:
            rule = "must be on a primary server, because a standby may be outdated"
            raise BadTable(f"{table} {rule}")
        columns = self._query(_COLUMNS, (table,))
        return {each["name"]: (each["kind"], each["place"]) for each in columns}

    def _key_kind(self, kinds: Kinds, name: str) -> str:
        self._check(kinds, name, tuple(_KEY_KINDS), "a key")
        return kinds[name][0]

    def _check(self, kinds: Kinds, name: str, allowed: Sequence[str], what: str) -> None:
        if not name:
            return
        if name not in kinds:
            raise BadTable(f"{self} has no column {name!r}; the columns are {', '.join(kinds)}")
        if kinds[name][0] not in allowed:
            rule = f"must have one of the types {', '.join(allowed)}, because it is {what}"
            raise BadTable(f"{self}: {name} {rule}; it has the type {kinds[name][0]}")

    def _lines(self, rows: Iterable[Row]) -> dict[str, str]:
        lines: dict[str, str] = {}
        for row in rows:
            id = self._rows.id(row)
            if id in lines:
                raise BadTable(f"{self}: two rows have the key {id}; name unique columns by --key")
            lines[id] = self._line(id, row)
        return lines

    def _line(self, id: str, row: Row) -> str:
        mapping = self._mapping
        operation = self._rows.put(row, row if mapping.data else None)
        for name, column in (("timestamp", mapping.changed), ("parents", mapping.parents)):
            if column and row[column] is not None:
                operation[name] = to_json_value(row[column])
        try:
            return dump_line(operation)
        except Rejected as error:
            raise BadTable(f"{self}, the row {id}: {error}") from None

    def _values(self, id: str) -> list[str] | None:
        """Return the key of the object *id*; None if no row can have this id."""
        values = split_key(id, len(self._key_kinds))
        if values is None:
            return None
        is_key = all(_KEY_KINDS[kind](v) for kind, v in zip(self._key_kinds, values, strict=True))
        return values if is_key else None

    def _query(self, query: sql.Composed | str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query that only reads. Retry it if the connection fails."""
        backoff = Backoff()
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return self._once(query, values)
            except psycopg.OperationalError as error:
                if self._connection is None or isinstance(error, psycopg.errors.QueryCanceled):
                    raise
                self._connection.close()
            sleep(backoff.next_s())
        return self._once(query, values)

    def _once(self, query: sql.Composed | str, values: Sequence[Any]) -> list[Row]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(
                self._dsn, _SETTINGS, connect_timeout=CONNECT_S, row_factory=dict_row
            )
            load_arrays(self._connection, self._table)
        with closing(self._connection.cursor()) as cursor:
            return fetch_rows(cursor.execute(query, values))


def _primary_key(table: str, kinds: Kinds) -> tuple[str, ...]:
    key = tuple(name for name, (_, place) in kinds.items() if place is not None)
    if not key:
        raise BadTable(f"{table} has no primary key; name unique columns with --key")
    return key


def _is_integer_of(bits: int) -> Callable[[str], bool]:
    """Return a function that returns True if a text is an integer of up to *bits* bits."""
    return lambda text: bool(_INTEGER.fullmatch(text)) and -(2**bits) <= int(text) < 2**bits


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


# For each type of a key column, a function that returns True if a part of an id can be a value of
# the column.
_KEY_KINDS: dict[str, Callable[[str], bool]] = {
    **{kind: _is_integer_of(bits) for kind, bits in _SPACES.items()},
    "text": lambda text: True,
    "character varying": lambda text: True,
    "uuid": _is_uuid,
}
