"""Write to a table of PostgreSQL; read a table: copy it, then follow its logical replication."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import groupby, islice
from select import select
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from psycopg.adapt import Loader, Transformer
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.rows import dict_row, tuple_row
from psycopg.types import TypeInfo
from psycopg.types.array import register_array
from psycopg.types.json import Jsonb, set_json_loads

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import blame_message
from tidings.pipelines.documents import DELETES_MAX, Keyed, Row, parse_json, to_text
from tidings.pipelines.ingest_source import (
    BATCH,
    COMPLETE,
    COPY,
    Batch,
    Known,
    ReaderState,
    batches,
)
from tidings.pipelines.messages import Away, Message, Overtaken, WrongPipeline, checked_table
from tidings.pipelines.ownership import ADOPTED, FENCES, MARKS, OURS, OwnedStore, TableMarks, Target
from tidings.pipelines.row_rules import LARGE_BYTES, LARGE_ROWS, LARGE_S, STOP, Names

PORT = 5432
WRITE_TIMEOUT_MS = 60_000  # a batch is repeated if a statement takes longer
# A batch is repeated if it waits for a lock for longer, so that a stop of the run has an effect.
LOCK_TIMEOUT_MS = 500
_TIMEOUT = f"""SET LOCAL statement_timeout = {WRITE_TIMEOUT_MS};
    SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}""".encode()
_SHOWN = ("host", "port", "dbname")

_MAKE = sql.SQL("""
    CREATE TABLE IF NOT EXISTS {table} (
        namespace text NOT NULL,
        id text NOT NULL,
        parents text[] NOT NULL,
        ts timestamptz,
        data jsonb NOT NULL,
        event_id text NOT NULL,
        PRIMARY KEY (namespace, id)
    )""")
_MAKE_FENCES = sql.SQL("""
    CREATE TABLE IF NOT EXISTS {fences} (writer text PRIMARY KEY, fence bigint NOT NULL)""")
_MAKE_MARKS = sql.SQL("""
    CREATE TABLE IF NOT EXISTS {marks} (
        target text PRIMARY KEY, incarnation text NOT NULL, mark text NOT NULL
    )""")
# The incarnation and the comment of a table.
_STATE = """SELECT oid::text, coalesce(obj_description(oid, 'pg_class'), '') FROM pg_class
    WHERE oid = to_regclass(%s)"""
# A claim waits for the transactions that are writing, which have checked the earlier mark.
_LOCK_TO_CLAIM = sql.SQL("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
_LOCK_TO_WRITE = sql.SQL("LOCK TABLE {table} IN ROW EXCLUSIVE MODE")
_COMMENT = sql.SQL("COMMENT ON TABLE {table} IS {mark}")
# Write the fence, unless a later one is there, and count the batch: the second row begins with 1.
_FENCE = sql.SQL("""
    INSERT INTO {fences} AS standing (writer, fence)
    VALUES (%(writer)s, %(fence)s), (%(counter)s, 1)
    ON CONFLICT (writer) DO UPDATE SET fence =
        CASE standing.writer WHEN %(counter)s THEN standing.fence + 1 ELSE excluded.fence END
    WHERE standing.writer = %(counter)s OR standing.fence <= excluded.fence
    RETURNING writer, fence""")
_PUT = sql.SQL("""
    INSERT INTO {table} (namespace, id, parents, ts, data, event_id)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (namespace, id) DO UPDATE SET parents = excluded.parents, ts = excluded.ts,
        data = excluded.data, event_id = excluded.event_id""")
_DELETE = sql.SQL("DELETE FROM {table} WHERE namespace = %s AND id = %s")
_EMPTY = sql.SQL("DELETE FROM {table}")


class Postgres(OwnedStore):
    """A sink that keeps *table* of the database at *dsn* equal to the objects of the feed.

    A batch is one transaction. After a later worker has written, an earlier worker can no longer
    write. A reset empties the table, in the same transaction as the messages after it in the batch.
    The server's session may be shared with other clients (`_is_shared`), so nothing is prepared or
    set in it.
    The table is marked with its consumer (`ownership`), in its comment and in `tidings_marks`.

    Raises:
        WrongPipeline: *table* is not a simple name.
    """

    def __init__(self, dsn: str, table: str = "objects") -> None:
        self._dsn, self._table = dsn, checked_table(table)
        names = {"table": table, "fences": FENCES, "marks": MARKS}
        self._names = {name: sql.Identifier(each) for name, each in names.items()}
        self._connection: psycopg.Connection | None = None

    def open(self, consumer: str) -> None:
        self._own(consumer)
        with self._transaction() as cursor:
            reason = self._claim(self._target(cursor))
            for statement in (_MAKE, _MAKE_FENCES, _MAKE_MARKS):
                cursor.execute(statement.format(**self._names))
            if reason != OURS:
                self._mark(cursor)

    def inspect(self) -> Target:
        with self._transaction() as cursor:
            return replace(self._target(cursor), count=self.count)

    def count(self) -> int:
        with self._transaction() as cursor:
            return self._target(cursor).count()

    def write(self, messages: list[Message], fence: int) -> None:
        with blame_message(messages), self._transaction() as cursor:
            written = self._check(cursor, fence)
            cursor.execute(_LOCK_TO_WRITE.format(**self._names))
            self._verify(self._marks(cursor).read(), written - 1)
            for statement, alike in groupby(messages, _statement):
                # Consecutive messages with the same statement need only one round trip.
                cursor.executemany(
                    statement.format(**self._names), [_values(message) for message in alike]
                )
        self.written = written

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [table_of(self._dsn, self._table)]

    def __str__(self) -> str:
        return f"table {self._table} at {without_secrets(self._dsn)}"

    @property
    def _writer(self) -> str:
        return f"{self._owner.consumer}:{self._table}"

    def _connect(self) -> psycopg.Connection:
        """Return the connection. Connect again if it broke."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None)
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor]:
        with self._connect().transaction(), self._connect().cursor() as cursor:
            cursor.execute(_TIMEOUT)
            yield cursor

    def _target(self, cursor: psycopg.Cursor) -> Target:
        cursor.execute("SET LOCAL statement_timeout = 0")  # a large table is counted for longer
        return self._marks(cursor).target(str(self), f'"{self._table}"')

    def _marks(self, cursor: psycopg.Cursor) -> TableMarks:
        def run(statement: str, *values: object) -> list[Any]:
            cursor.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

        return TableMarks(run, _STATE, self._table, self._writer)

    def _mark(self, cursor: psycopg.Cursor) -> None:
        """Mark the table, after the transactions that write to it have ended."""
        cursor.execute(_TIMEOUT)
        cursor.execute(_LOCK_TO_CLAIM.format(**self._names))
        marks = self._marks(cursor)
        if self._claim(self._target(cursor)) == ADOPTED:
            marks.adopt(self.written)
        marks.record(self._owner.mark)
        comment = _COMMENT.format(**self._names, mark=marks.comment(self._owner.mark))
        with (
            # Only the owner of a table may write its comment, and a view has none.
            suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType),
            self._connect().transaction(),
        ):
            cursor.execute(comment)

    def _check(self, cursor: psycopg.Cursor, fence: int) -> int:
        """Store the fence, and return the number of batches, with this one."""
        counter = self._marks(cursor).counter
        values = {"writer": self._writer, "fence": fence, "counter": counter}
        cursor.execute(_FENCE.format(**self._names), values)
        found: dict[str, int] = dict(cursor.fetchall())
        if self._writer not in found:
            raise Overtaken(f"a worker later than {fence} writes {self._table}")
        return found[counter]


def _statement(message: Message) -> sql.SQL:
    if message.is_command:
        return _EMPTY
    return _DELETE if message.is_gone else _PUT


def _values(message: Message) -> tuple[object, ...]:
    if message.is_command:
        return ()
    if message.is_gone:
        return message.namespace, message.key
    parents, ts = message.data.get("parents", []), message.ts or None
    return message.namespace, message.key, parents, ts, Jsonb(message.data, to_text), message.id


def table_of(dsn: str, name: str) -> Dataset:
    """Return the lineage dataset of the table *name* in the database *dsn*.

    *name* may contain the schema; otherwise the schema is `public`.

    Raises:
        psycopg.ProgrammingError: *dsn* is invalid.
    """
    parts = conninfo_to_dict(dsn)
    host, port = (str(parts.get(name) or "").split(",")[0] for name in ("host", "port"))
    server = "" if host.startswith("/") else host  # a path names the folder of Unix sockets
    where = datasets.server(f"//{server}", "postgres", int(port or PORT))
    schema = "" if "." in name else "public."
    return Dataset(where, f"{parts.get('dbname') or parts.get('user', '')}.{schema}{name}")


def without_secrets(dsn: str) -> str:
    """Return the host and database of *dsn*."""
    if "://" in dsn:
        parts = urlsplit(dsn)
        return f"{parts.hostname or 'local'}{parts.path}"
    return " ".join(each for each in dsn.split() if each.split("=")[0] in _SHOWN) or "local"


Values = dict[str, bytes | None]  # the text of each column's value; unchanged values may be missing


@dataclass(frozen=True, slots=True)
class Changed:
    """A changed row of the table with the id *relation*.

    *old* has the previous key or the previous row, or is None if the server did not send it. *new*
    has the current values, or is None if the row was deleted. *is_complete* is True if *new* has a
    value for every column. *event* is the event of the object of *new*.
    """

    relation: int
    old: Values | None
    new: Values | None
    is_complete: bool = True
    event: str = "insert"


@dataclass(frozen=True, slots=True)
class Truncated:
    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The end of a transaction. *end* is its position (LSN) in the server's log.

    *message* identifies the transaction: it has this position and the time of the commit.
    """

    end: str
    message: bytes


@dataclass(slots=True)
class Decoder:
    """A decoder of one stream of logical replication (plugin `pgoutput`).

    *relations* has, by the id of a table, the type of each column. The server describes each table
    before the first change of one of its rows.
    """

    relations: dict[int, dict[str, int]] = field(default_factory=dict)

    def decode(self, message: bytes) -> Changed | Truncated | Committed | None:
        """Decode *message*. Return None if it has no change, truncation or end of transaction."""
        kind, rest = message[:1], _Bytes(message, 1)
        match kind:
            case b"R":
                self._relation(rest)
            case b"I":
                oid, _ = rest.number("I"), rest.take(1)
                new, is_complete = self._tuple(oid, rest)
                return Changed(oid, None, new, is_complete)
            case b"U":
                return self._parse_update(rest)
            case b"D":
                oid, _ = rest.number("I"), rest.take(1)
                old, _ = self._tuple(oid, rest)
                return Changed(oid, old, None)
            case b"T":
                count, _ = rest.number("I"), rest.number("B")
                return Truncated(tuple(rest.number("I") for _ in range(count)))
            case b"C":
                return Committed(_end_of(message), message)
        return None

    def _relation(self, rest: _Bytes) -> None:
        oid = rest.number("I")
        rest.text(), rest.text(), rest.number("B")  # schema, table, replica identity
        columns = self.relations[oid] = {}
        for _ in range(rest.number("H")):
            rest.number("B")
            name, columns[name], _ = rest.text(), rest.number("I"), rest.number("I")

    def _parse_update(self, rest: _Bytes) -> Changed:
        oid, mark, old = rest.number("I"), rest.take(1), None
        if mark != b"N":
            old, _ = self._tuple(oid, rest)
            rest.take(1)
        new, is_complete = self._tuple(oid, rest)
        for name, value in (old or {}).items():
            if value is not None:  # a large key that did not change is only in the old row
                new.setdefault(name, value)
        return Changed(oid, old, new, is_complete, "update")

    def _tuple(self, oid: int, rest: _Bytes) -> tuple[Values, bool]:
        values: Values = {}
        count = rest.number("H")
        for name in islice(self.relations[oid], count):
            match rest.take(1):
                case b"n":
                    values[name] = None
                case b"t":
                    values[name] = rest.take(rest.number("I"))
        return values, len(values) == count


class _Bytes:
    """Bytes that are read from the front to the end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, count: int) -> bytes:
        content = self._data[self._at : self._at + count]
        self._at += count
        return content

    def number(self, kind: str) -> int:
        """Read a big-endian unsigned number; *kind* is B for one byte, H two, I four, Q eight."""
        number: int = struct.unpack_from(f">{kind}", self._data, self._at)[0]
        self._at += struct.calcsize(kind)
        return number

    def text(self) -> str:
        """Read the text up to the next zero byte."""
        end = self._data.index(0, self._at)
        text, self._at = self._data[self._at : end].decode(), end + 1
        return text


def _end_of(commit: bytes) -> str:
    """Return the position (LSN) at which the transaction of the message *commit* ends."""
    high, low = struct.unpack_from(">II", commit, 10)
    return f"{high:X}/{low:X}"


LOOK_S = 0.3  # the time between two reads of the slot, so that a change is soon in the feed
CHANGES_MAX = 10_000  # changes per request; a larger transaction is still returned completely
CHECK_S = 5  # the connection timeout of a check; an available server responds within 1 s
CANCEL_S = 0.3  # the limit of a request to cancel a query; a stop of the run waits for it
# The time between two releases of the server's log (`_release`) while only other tables change.
RELEASE_S = 10.0
_SLOT = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)
_TABLE = re.compile(r"([a-z_][a-z0-9_]*\.)?[a-z_][a-z0-9_]*", re.ASCII)
_ALL = sql.SQL("*")

# Settings of a session, so that times are in UTC, and a value has the same text in a query and in
# the log.
SESSION = """SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres';
    SET bytea_output = 'hex'; SET extra_float_digits = 1; SET row_security = off"""
_BACKEND = "SELECT pg_backend_pid()"
# Types with values outside the range of Python's types, such as `infinity`. These values remain
# text.
_PARTIAL = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")

_NEW_IDS = (1186, 1187, 3802)  # interval, interval[], jsonb: earlier releases had other ids

_SERVER = """SELECT current_setting('wal_level') AS level, pg_is_in_recovery() AS standby,
    current_user AS me, current_database() AS base,
    has_database_privilege(current_database(), 'CREATE') AS creates,
    (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)
    OR EXISTS (SELECT FROM pg_roles WHERE rolname IN ('rds_replication', 'cloudsqlsuperuser')
        AND pg_has_role(oid, 'MEMBER')) AS replicates,
    (SELECT count(*) FROM pg_replication_slots) <
        current_setting('max_replication_slots')::int AS is_slot_free"""
_PUBLISHED = """SELECT puballtables AS everything, prrelid IS NOT NULL AS ours,
    pubinsert AND pubupdate AND pubdelete AND pubtruncate AS complete,
    to_jsonb(r)->>'prqual' IS NULL AND to_jsonb(r)->>'prattrs' IS NULL
    AND to_jsonb(p)->>'pubviaroot' IS DISTINCT FROM 'true' AS whole,
    EXISTS (SELECT FROM pg_publication_rel WHERE prpubid = p.oid) AS used
    FROM pg_publication p LEFT JOIN pg_publication_rel r
    ON prpubid = p.oid AND prrelid = to_regclass(%s) WHERE pubname = %s"""
_PUBLISH = sql.SQL("CREATE PUBLICATION {slot} FOR TABLE {table}")
_PUBLISH_OTHER = sql.SQL("ALTER PUBLICATION {slot} SET TABLE {table}")
_UNPUBLISH = sql.SQL("DROP PUBLICATION IF EXISTS {slot}")
_SLOT_STATE = """SELECT coalesce(to_jsonb(s)->>'wal_status', '') <> 'lost' AS usable
    FROM pg_replication_slots s WHERE slot_name = %s"""
_CREATE = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
_DROP = "SELECT pg_drop_replication_slot(%s)"
_END = "SELECT pg_current_wal_flush_lsn()::text AS lsn"
_PEEK = """SELECT data FROM pg_logical_slot_peek_binary_changes(
    %s, %s, %s, 'proto_version', '1', 'publication_names', %s)"""
_SYSTEM = """SELECT system_identifier::text AS system,
    (SELECT confirmed_flush_lsn < %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s)
        AS is_behind FROM pg_control_system()"""
_COMMITTED = """SELECT count(*) FROM pg_logical_slot_peek_binary_changes(
    %s, %s, NULL, 'proto_version', '1', 'publication_names', %s) WHERE data = %s"""
_ADVANCE = "SELECT pg_replication_slot_advance(%s, %s)"
_RETAINED = """SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
    FROM pg_replication_slots WHERE slot_name = %s"""

# A query for the table, and for the other tables with its rows: its partitions, and the tables that
# inherit from it.
_SHAPE = """WITH RECURSIVE tree AS (
    SELECT to_regclass(%s)::oid AS oid
    UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid)
    SELECT c.oid::bigint AS oid, c.oid::regclass::text AS name, relkind::text AS kind,
    relpersistence::text AS persistence, relreplident::text AS identity,
    pg_has_role(relowner, 'USAGE') AS owned, has_table_privilege(c.oid, 'SELECT') AS readable,
    (SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute
        ON attrelid = indrelid AND attnum = ANY(indkey) WHERE indrelid = c.oid
        AND CASE relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END) AS known
    FROM tree JOIN pg_class c USING (oid) ORDER BY c.oid <> to_regclass(%s)::oid, c.oid"""
_LARGE = sql.SQL("""SELECT {} FROM {} AS tidings WHERE octet_length(tidings::text) > %s
    ORDER BY octet_length(tidings::text) DESC LIMIT %s""")
# *composite* is the name of the column's type if it is a composite type, or a domain of one.
_COLUMNS = """SELECT attname::text AS name, atttypid::bigint AS kind, atttypmod AS modifier,
    (SELECT array_position(indkey::int2[], attnum) FROM pg_index
        WHERE indrelid = attrelid AND indisprimary) AS place,
    (WITH RECURSIVE base AS (SELECT atttypid AS oid
        UNION SELECT typbasetype FROM base JOIN pg_type USING (oid))
        SELECT oid::regtype::text FROM base JOIN pg_type USING (oid) WHERE typtype = 'c')
        AS composite
    FROM pg_attribute WHERE attrelid = %s::bigint::oid AND attnum > 0 AND NOT attisdropped
    ORDER BY place, attnum"""
# The types of arrays in the columns of a table, with the types of their elements, and the types of
# domains. Types may be nested, as in an array of a domain of an array.
_TYPES = """WITH RECURSIVE used AS (
    SELECT atttypid AS oid FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0
    UNION SELECT unnest(ARRAY[typelem, typbasetype]) FROM used JOIN pg_type USING (oid))
    SELECT t.oid::bigint AS oid, t.typname::text AS name, t.typbasetype::bigint AS base,
    each.oid::bigint AS element, each.typdelim::text AS delimiter
    FROM used JOIN pg_type t USING (oid) LEFT JOIN pg_type each
    ON each.oid = t.typelem AND each.typarray = t.oid
    WHERE t.typbasetype <> 0 OR each.oid <> 0"""
_UNIQUE = """SELECT array_agg(attname::text) AS columns FROM pg_index JOIN pg_attribute
    ON attrelid = indrelid AND attnum = ANY((indkey::int2[])[0:indnkeyatts - 1])
    WHERE indrelid = %s::bigint::oid AND indisunique AND indisvalid AND indimmediate
    AND indpred IS NULL AND indexprs IS NULL GROUP BY indexrelid"""


class ServerRow(Row):
    """A row, with a function *text* that returns the server's text of a value; None is NULL."""

    def __init__(self, values: Mapping[str, Any], text: Callable[[str], bytes | None]) -> None:
        super().__init__(values)
        self.text = text


def fetch_rows(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """Return the rows of the query of *cursor*, with the server's texts."""
    result, names = cursor.pgresult, [each.name for each in cursor.description or ()]
    assert result is not None

    def text(at: int, name: str) -> bytes | None:
        return result.get_value(at, names.index(name))

    return [ServerRow(row, partial(text, at)) for at, row in enumerate(cursor.fetchall())]


def _unambiguous(value: Any, text: str) -> Any:
    """Return *value*, or its *text* if another value of the same type may have the same id.

    Such values are texts in JSON, arrays with bounds, and intervals with months.
    """
    is_json_text = value is None or (isinstance(value, str) and value != text)
    is_bounded = isinstance(value, list) and text.startswith("[")
    has_months = ("mon" in text or "year" in text) and _has_interval(value)
    return text if is_json_text or is_bounded or has_months else value


def _has_interval(value: Any) -> bool:
    is_list = isinstance(value, list)
    return any(map(_has_interval, value)) if is_list else isinstance(value, timedelta)


class Rows(Keyed):
    """The queries for the rows of a table of PostgreSQL, and the conversion of rows to operations.

    *options* are those of `Keyed`, from *key* on.

    Raises:
        WrongPipeline: *table* is not a simple name.
    """

    def __init__(self, table: str, *options: Any) -> None:
        if not _TABLE.fullmatch(table):
            raise WrongPipeline(f"table must be [SCHEMA.]NAME of a-z, 0-9 and '_', not {table!r}")
        super().__init__(table, *options)
        self.table = sql.Identifier(*table.split("."))
        self.composites: dict[str, str] = {}  # the type of each column of a composite type

    def id(self, row: Row) -> str:
        texts = zip(self.keys, self.key_of(row), strict=True)
        return super().id({key: _unambiguous(row.get(key), text) for key, text in texts})

    def key_of(self, row: Row) -> list[Any]:
        """Return the key of *row* in the server's text format, for `page` and `same`."""
        assert isinstance(row, ServerRow)
        texts = map(row.text, self.keys)
        return [None if each is None else each.decode() for each in texts]

    def page(
        self,
        after: Sequence[Any] | None,
        most: int,
        columns: Sequence[str] = (),
        table: sql.Composable | None = None,
    ) -> tuple[sql.Composed, tuple[Any, ...]]:
        """Return a query for up to *most* rows after the key *after*, and the query's parameters.

        *columns* are the columns to read, by default the chosen ones. *table* is a partition to
        read instead of the whole table.
        """
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        behind = sql.SQL("WHERE ({}) > ({})").format(keys, self._values) if after else sql.SQL("")
        query = sql.SQL("SELECT {} FROM {} {} ORDER BY {} LIMIT {}")
        named = _identifiers(columns or self.selected), table or self.table
        return query.format(*named, behind, keys, most), tuple(after or ())

    def those(
        self, kinds: Sequence[str], values: Sequence[Sequence[Any]], columns: Sequence[str] = ()
    ) -> tuple[sql.Composed, tuple[Any, ...]]:
        """Return a query for the rows with the keys *values*, and the query's parameters.

        *kinds* are the types of the columns of the key.
        """
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        arrays = sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in kinds)
        query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN (SELECT * FROM unnest({}))")
        columnwise = tuple([value[at] for value in values] for at in range(len(self.keys)))
        return query.format(_identifiers(columns), self.table, keys, arrays), columnwise

    def same(self, values: Sequence[Iterable[str]]) -> tuple[sql.Composed, tuple[Any, ...]]:
        """Return a query for the rows with the keys *values*, and the query's parameters.

        The keys are in the server's text format, as `place` returns them.
        """
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        each = sql.SQL(", ").join([sql.SQL("({})").format(self._values)] * len(values))
        named = _identifiers(self.selected), self.table, keys, each
        query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN ({})").format(*named)
        return query, tuple(part for value in values for part in value)

    @property
    def _values(self) -> sql.Composable:
        """The parameters for a key. The server must know composite types to parse their text."""
        casts = {name: f"::{each}".replace("%", "%%") for name, each in self.composites.items()}
        return sql.SQL(", ").join(sql.SQL(f"%s{casts.get(key, '')}") for key in self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The shape of a table.

    *tables* are the table itself, followed by the other tables with its rows: its partitions, and
    the tables that inherit from it. *columns* are the columns of the table, each with its type and
    its place in the primary key.
    """

    tables: tuple[Row, ...]
    columns: tuple[Row, ...]

    @property
    def state(self) -> dict[str, Any]:
        """Return the description that a reader stores, in order to detect changes of the table."""
        parts = sorted(each["oid"] for each in self.tables)
        columns = [[each["name"], each["kind"], each["modifier"]] for each in self.columns]
        return {"table": self.tables[0]["oid"], "parts": parts, "columns": sorted(columns)}

    @property
    def identities(self) -> list[Any]:
        """Return the replica identity of each of the tables, and the columns of this identity."""
        return [(each["oid"], each["identity"], each["known"]) for each in self.tables]


_Change = tuple[Row | None, Row | None, str]  # the old row, the new row, and the event


class PostgresTable:
    """A source that reads the rows of *table* at *dsn* as objects of *type*.

    The default of *type* is the table's name. *key* names the columns that form an object's id
    (default: the primary key). The table is copied. If *follow*, later changes are read, too. This
    requires `wal_level=logical`, and creates a publication and a replication slot, both named
    *slot* (default: `tidings_PIPELINE_READER`). The server keeps its log until the slot is read or
    dropped. A slot belongs to one feed.

    If the table is replaced or altered, or the slot is lost, the table is copied again, and objects
    of this reader without a row are deleted. The reader stops before it deletes more than 10 % of
    them and more than *max_deletes*.

    *columns* or *exclude* select columns, and *too_large* is the rule for large rows (`RowRules`).

    Raises:
        WrongPipeline: *table* or *slot* is not a simple name.
    """

    is_copy = True

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        type: str = "",
        key: str | Sequence[str] = (),
        follow: bool = True,
        slot: str = "",
        max_deletes: int = DELETES_MAX,
        columns: Names = (),
        exclude: Names = (),
        too_large: str = STOP,
    ) -> None:
        if slot and not _SLOT.fullmatch(slot):
            rule = "slot must be 1 to 63 characters a-z, 0-9 and '_'"
            raise WrongPipeline(f"{rule}, not {slot!r}")
        self._rows = Rows(table, key, type, max_deletes, columns, exclude, too_large)
        self.refit = self._rows.refit
        self._type, self._dsn, self._follow = self._rows.type, dsn, follow
        self._is_key_given = bool(self._rows.keys)
        self._slot, self._state = slot, dict[str, Any]()
        self._connection: psycopg.Connection | None = None
        self._released_s, self._released = 0.0, ""
        self._loaders: dict[str, Callable[[bytes], Any]] = {}

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        """Connect, and resume at *state*.

        Nothing is created before everything is checked.

        Raises:
            WrongPipeline: the table cannot be read or followed, or the slot belongs to another
                feed. The message has each reason and its remedy.
            Away: the table was read before and is missing.
        """
        self._slot = self._slot or _slot_of(name)
        self._state, self._known = dict(state.get(self._type, {})), known
        self._connection = connect(self._dsn)
        self._shape = self._look()
        self._refuse(self._shape)
        if self._follow and not (self._is_same_history() and self._is_resumable()):
            self._state = {"again": True} if self._state else {}

    def read(self) -> Iterator[Batch]:
        """Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: the table can no longer be followed.
            Away: the table is missing. When it exists again, it is copied again.
            psycopg.Error: the server is not available, or rejects a query.
        """
        if self._follow and "table" not in self._state:
            # Store the name of the slot before the slot is created. An existing slot counts as the
            # slot of another reader if the slot's name is not in the state.
            again = self._state.get("again", False)
            self._state = {"mode": COPY, "slot": self._slot, "again": again}
            yield Batch([], {self._type: self._state})
            self._make_slot()
            self._state |= self._described(self._shape)
        elif self._follow and "system" not in self._state:  # of an earlier release
            self._state["system"] = self._system
            yield Batch([], {self._type: self._state})
        if self._state.get("mode") != COMPLETE:
            yield from self._copy()
        while self._follow:
            ((end,),) = (each.values() for each in self._query(_END))
            if end != self._released:  # otherwise no row and no table has changed
                yield from self._changes(end)
            yield Batch()
            time.sleep(LOOK_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def interrupt(self) -> None:
        """End the current query, which may wait for a lock; any thread may call this method."""
        if self._connection is not None:
            self._connection.cancel_safe(timeout=CANCEL_S)

    def retained_bytes(self, name: str) -> int | None:
        """Return the size of the log that is kept for the reader *name*; None without a slot.

        Any thread may call this method, whatever the reader waits for.
        """
        if not self._follow:
            return None
        with closing(
            psycopg.connect(self._dsn, autocommit=True, connect_timeout=CHECK_S)
        ) as connection:
            row = connection.execute(_RETAINED, (self._slot or _slot_of(name),)).fetchone()
        return int(row[0]) if row else None

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [table_of(self._dsn, self._rows.name)]

    def check(self, name: str) -> tuple[list[str], list[str]]:
        """Return the problems that prevent the reader *name* from reading, and the grants it needs.

        Raises:
            psycopg.Error: the server is not available.
        """
        self._slot = self._slot or _slot_of(name)
        self._connection = connect(self._dsn, connect_timeout=CHECK_S)
        try:
            shape = self._look()
            self._state = {"slot": self._slot}  # an existing slot counts as this reader's
            problems = self._problems(shape)
            problems = problems or self._rows.problems_of_size(name, self._large_rows)
            (server,) = self._query(_SERVER)
        finally:
            self.close()
        me = sql.Identifier(server["me"]).as_string()
        grants = [f"GRANT SELECT ON {self._rows.name} TO {me};"]
        if self._follow:
            grants += [f"ALTER ROLE {me} REPLICATION;"]
            grants += [f"CREATE PUBLICATION {self._slot} FOR TABLE {self._rows.name};"]
        return problems, grants

    def __str__(self) -> str:
        return f"table {self._rows.name} at {without_secrets(self._dsn)}"

    def _large_rows(self) -> list[Row]:
        self._query("SELECT set_config('statement_timeout', %s, false)", str(LARGE_S * 1000))
        selected, table = _identifiers(self._rows.selected), self._rows.table
        return self._query(_LARGE.format(selected, table), LARGE_BYTES, LARGE_ROWS)

    def _look(self) -> _Shape:
        """Return the current shape of the table, and set the key if it was not given."""
        name = self._rows.name
        tables = self._query(_SHAPE, name, name)
        if not tables:
            missing = f"{self}: no table has this name"
            raise (Away if self._state else WrongPipeline)(missing)
        columns = self._query(_COLUMNS, tables[0]["oid"])
        assert self._connection is not None
        load_arrays(self._connection, name)
        if not self._is_key_given:
            self._rows.keys = tuple(each["name"] for each in columns if each["place"] is not None)
        self._rows.composites = {e["name"]: e["composite"] for e in columns if e["composite"]}
        old = self._state.get("columns", () if self._state else None)
        published = None if old is None else [name for name, *_ in old]
        self._unfit = self._rows.choose([each["name"] for each in columns], published)
        fields = self._rows.fields
        chosen = tuple(each for each in columns if each["name"] in fields)
        return _Shape(tables=tuple(tables), columns=chosen)

    def _refuse(self, shape: _Shape) -> None:
        """Raise `WrongPipeline` if the table cannot be read or followed.

        If the log would not contain the key of changed rows, stop publishing the table, because
        updates and deletions of its rows may otherwise fail. The table is copied again when it can
        be followed again.
        """
        problems = self._problems(shape)
        if not problems:
            return
        ours = self._follow and self._state.get("slot") == self._slot
        if ours and (not self._rows.keys or any(self._problems_of_identity(shape))):
            self._do(_UNPUBLISH.format(slot=sql.Identifier(self._slot)))
        raise WrongPipeline(f"{self}: {'; '.join(problems)}")

    def _problems(self, shape: _Shape) -> list[str]:
        """Return each reason why the table cannot be read, with its remedy."""
        (root, *_), found = shape.tables, list(self._unfit)
        columns = [each["name"] for each in shape.columns]
        if not self._rows.keys:
            found.append("it has no primary key; give key=")
        if unknown := [key for key in self._rows.keys if key not in columns]:
            found.append(f"it has no column {unknown[0]!r}; the columns are {', '.join(columns)}")
        if not root["readable"]:
            found.append(f"the user may not read its rows: GRANT SELECT ON {root['name']}")
        if self._follow and not found:
            (server,) = self._query(_SERVER)
            found += [*self._problems_of_server(server), *self._problems_of_slot(root, server)]
            found += self._problems_of_identity(shape)
        return found

    def _problems_of_server(self, server: Row) -> Iterator[str]:
        if server["level"] != "logical":
            rule = "to follow it, the server must run with wal_level=logical"
            yield f"{rule}, not {server['level']}; or give follow=False"
        if server["standby"]:
            yield "a standby cannot be followed: connect to the primary server"
        if not server["replicates"]:
            yield f"{server['me']} may not replicate: ALTER ROLE {server['me']} REPLICATION"

    def _problems_of_slot(self, root: Row, server: Row) -> Iterator[str]:
        slot, ours = self._slot, self._state.get("slot") == self._slot
        found_slots = self._query(_SLOT_STATE, slot)
        if found_slots and not ours:
            yield f"the slot {slot} exists, but not for this feed: give another one, or drop it"
        if not found_slots and not server["is_slot_free"]:
            yield "all replication slots are in use: raise max_replication_slots, or drop a slot"
        published = self._query(_PUBLISHED, self._rows.name, slot)
        if not published and not (root["owned"] and server["creates"]):
            create = f"CREATE PUBLICATION {slot} FOR TABLE {root['name']}"
            yield f"{server['me']} may not publish it: let its owner run {create}"
        for each in published:
            if not (each["ours"] or each["everything"] or ours) and each["used"]:
                yield f"the publication {slot} publishes another table"
            elif not each["complete"] or not each["whole"]:
                rule = "must publish all rows, columns and operations, and partitions by their name"
                yield f"the publication {slot} {rule}: DROP PUBLICATION {slot}"

    def _problems_of_identity(self, shape: _Shape) -> Iterator[str]:
        """Yield each reason why the log would not contain the key of a changed row.

        If a table without a replica identity is published, updates and deletions of its rows fail.
        """
        keys = set(self._rows.keys)
        for each in shape.tables:
            name, known = each["name"], set(each["known"] or ())
            if each["kind"] not in "rp":
                yield f"{name} is not a table: only tables can be followed; or give follow=False"
            elif each["persistence"] != "p":
                yield f"{name} is not in the log: ALTER TABLE {name} SET LOGGED"
            elif each["identity"] == "f" or each["kind"] == "p":
                continue
            elif not known:
                give = f"ADD PRIMARY KEY, or ALTER TABLE {name} REPLICA IDENTITY FULL"
                yield f"{name} has no replica identity: ALTER TABLE {name} {give}"
            elif not keys <= known:
                give = "REPLICA IDENTITY FULL, or USING INDEX with an index that has the key"
                rule = f"the key ({', '.join(self._rows.keys)}) is not in the replica identity"
                yield f"{rule} ({', '.join(sorted(known))}) of {name}: ALTER TABLE {name} {give}"
        unique = self._query(_UNIQUE, shape.tables[0]["oid"])
        if shape.tables[0]["kind"] in "rp" and not any(keys >= {*e["columns"]} for e in unique):
            rule = "is not unique: CREATE UNIQUE INDEX; the index must not be deferrable"
            yield f"the key ({', '.join(self._rows.keys)}) {rule}"

    def _is_resumable(self) -> bool:
        """Return True if the log has all changes of this table since the stored position."""
        found_slots, state = self._query(_SLOT_STATE, self._slot), self._state
        published = self._query(_PUBLISHED, self._rows.name, self._slot)
        return (
            any(each["usable"] for each in found_slots)
            and any(each["ours"] or each["everything"] for each in published)
            and all(each["complete"] and each["whole"] for each in published)
            and state.get("table") == self._shape.tables[0]["oid"]
            and state.get("key") == self._key_of(self._shape)
        )

    def _is_same_history(self) -> bool:
        """Return True if the log has the last transaction that was read.

        After a crash of the server, the slot may be at an earlier position than it confirmed. Then
        the log is searched for the transaction. After the database was put back to an earlier
        state, the log has another one there, or none.
        """
        commit = bytes.fromhex(self._state.get("commit", ""))
        end = _end_of(commit) if commit else "0/0"
        (found,) = self._query(_SYSTEM, end, self._slot)
        self._system = found["system"]
        if self._state.get("system", self._system) != self._system:
            return False
        if not found["is_behind"] or not self._is_resumable():
            return True
        (same,) = self._query(_COMMITTED, self._slot, end, self._slot, commit)
        return bool(same["count"])

    def _described(self, shape: _Shape) -> dict[str, Any]:
        return {**shape.state, "key": self._key_of(shape), "system": self._system}

    def _key_of(self, shape: _Shape) -> list[Any]:
        # A table with an id of an earlier release is copied again.
        changed = {each["name"] for each in shape.columns if each["kind"] in _NEW_IDS}
        return [[key, "text"] if key in changed else key for key in self._rows.keys]

    def _make_slot(self) -> None:
        """Create the publication and the slot. Replace them if they exist for an earlier table."""
        if self._query(_SLOT_STATE, self._slot):
            self._query(_DROP, self._slot)
        names = {"slot": sql.Identifier(self._slot), "table": self._rows.table}
        published = self._query(_PUBLISHED, self._rows.name, self._slot)
        if not published:
            self._do(_PUBLISH.format(**names))
        elif not any(each["ours"] or each["everything"] for each in published):
            self._do(_PUBLISH_OTHER.format(**names))
        self._query(_CREATE, self._slot)
        self._released = ""

    def _copy(self) -> Iterator[Batch]:
        """Yield all rows after the stored key, in the order of their keys.

        Changes that are made during the copy are in the log, and are read from there afterwards.
        """
        self._rows.begin_copy(self._known)
        for rows in self._pages(after=self._state.get("at")):
            at = self._rows.key_of(rows[-1])
            self._state = {**self._state, "mode": COPY, "at": at}
            yield Batch(self._rows.copy(rows), {self._type: self._state})
        if self._state.get("again"):
            yield from self._missing()
        self._rows.end_copy()
        kept = {name: each for name, each in self._state.items() if name not in ("at", "again")}
        self._state = {**kept, "mode": COMPLETE}
        yield Batch([], {self._type: self._state})

    def _pages(
        self,
        after: Sequence[Any] | None = None,
        columns: Sequence[str] = (),
        table: sql.Composable | None = None,
    ) -> Iterator[list[Row]]:
        while True:
            query, values = self._rows.page(after, BATCH, columns, table)
            rows = self._query(query, *values)
            if not rows:
                return
            after = self._rows.key_of(rows[-1])
            yield rows

    def _missing(self, *, is_logged: bool = False) -> Iterator[Batch]:
        keys = partial(self._pages, columns=self._rows.keys)
        yield from self._rows.missing(self._known, keys, is_logged=is_logged)

    def _changes(self, end: str) -> Iterator[Batch]:
        """Yield the changes in the slot up to *end*. Advance the slot when the feed has them."""
        found = self._query(_PEEK, self._slot, end, CHANGES_MAX, self._slot)
        shape = self._look()
        stored = {name: self._state.get(name) for name in shape.state}
        is_same = shape.state == stored and shape.identities == self._shape.identities
        if not is_same or not self._is_resumable():
            # The changes may belong to the table as it was before, so they are not decoded now.
            yield from self._reshape(shape)
            return
        if not self._loaders:
            self._loaders = self._load_columns()
            self._kinds = {each["name"]: each["kind"] for each in shape.columns}
        # Remember the last transaction before its changes are in the feed (`_is_same_history`).
        if found:  # transactions are returned completely, so the last message is the end of one
            self._state["commit"] = found[-1]["data"].hex()
        decoder, changes = Decoder(), list[_Change]()
        members, committed = {each["oid"] for each in shape.tables}, ""
        for row in found:
            message = decoder.decode(row["data"])
            if isinstance(message, Committed):
                committed = message.end
            elif isinstance(message, Truncated) and members.intersection(message.relations):
                yield from self._operations_of(changes)
                changes = []
                yield Batch([], {self._type: self._state})
                yield from self._missing(is_logged=True)
            elif isinstance(message, Changed) and message.relation in members:
                kinds = decoder.relations[message.relation]
                old, new = (self._load_row(each, kinds) for each in (message.old, message.new))
                changes.append((old, new, message.event))
            if len(changes) >= BATCH:
                yield from self._operations_of(changes)
                changes = []
        yield from self._operations_of(changes)
        self._release(end if len(found) < CHANGES_MAX else committed, is_idle=not found)

    def _release(self, end: str, *, is_idle: bool) -> None:
        """Let the server remove its log up to *end*.

        If *is_idle*, do this at most once every `RELEASE_S` seconds.
        """
        is_due = not is_idle or time.monotonic() - self._released_s >= RELEASE_S
        if is_due and end != self._released:
            self._query(_ADVANCE, self._slot, end)
            self._released, self._released_s = end, time.monotonic()

    def _reshape(self, shape: _Shape) -> Iterator[Batch]:
        """Continue after the table was replaced, altered or removed from its publication."""
        old, new, self._shape, self._loaders = self._state, shape.state, shape, {}
        if is_lost := not self._is_resumable():
            self._state = {"again": True, "mode": COPY, "slot": self._slot}
            yield Batch([], {self._type: self._state})
        self._refuse(shape)
        if is_lost:
            self._make_slot()
            self._state |= self._described(shape)
            yield from self._copy()
        elif old["columns"] != new["columns"]:
            self._state = {**old, **new, "again": True, "mode": COPY}
            yield from self._copy()
        else:
            for part in shape.tables:
                if part["oid"] not in old["parts"] and part["kind"] == "r":
                    table = sql.SQL(part["name"])  # the server has quoted this name
                    self._rows.begin_copy(self._known)
                    for rows in self._pages(table=table):
                        yield Batch(self._rows.copy(rows))
                    self._rows.end_copy()
            if not set(old["parts"]) <= set(new["parts"]):
                yield from self._missing()
            self._state = {**old, **new}
            yield Batch([], {self._type: self._state})

    def _operations_of(self, changes: Sequence[_Change]) -> Iterator[Batch]:
        """Yield the operations of *changes*.

        New rows that are incomplete are queried again.
        """
        operations, again = list[dict[str, Any]](), dict[int, Row]()
        for old, new, event in changes:
            if new is None:
                assert old is not None
                operations.append(self._rows.deletion(self._rows.id(old)))
                continue
            if old is not None and self._rows.id(old) != self._rows.id(new):
                operations.append(self._rows.deletion(self._rows.id(old)))
                event = "insert"
            if new.keys() != self._loaders.keys():
                again[len(operations)] = new
            operations.append(self._rows.put(new, new, event))
        for at, row in self._read_again(again).items():
            operations[at] = self._rows.put(row, row, operations[at]["event"]) if row else {}
        if operations := [each for each in operations if each]:
            yield from batches(operations, {self._type: self._state})

    def _read_again(self, rows: dict[int, Row]) -> dict[int, Row | None]:
        """Return the current row for each of *rows*, or None for a row that was deleted.

        Rows in the log are incomplete if the table has generated columns or unchanged large values.
        """
        if not rows:
            return {}
        keys = {self._rows.id(row): self._rows.key_of(row) for row in rows.values()}
        query, values = self._rows.same(list(keys.values()))
        found = {self._rows.id(row): row for row in self._query(query, *values)}
        return {at: found.get(self._rows.id(row)) for at, row in rows.items()}

    def _load_columns(self) -> dict[str, Callable[[bytes], Any]]:
        """Return, for each column, a function that converts a value of the log.

        The function takes the text in the log, and returns the value that a query would return.
        """
        assert self._connection is not None
        cursor = self._connection.execute(
            sql.SQL("SELECT {} FROM {} LIMIT 0").format(
                _identifiers(self._rows.selected), self._rows.table
            )
        )
        transformer = Transformer(self._connection)
        return {
            each.name: transformer.get_loader(each.type_code, Format.TEXT).load
            for each in cursor.description or ()
        }

    def _load_row(self, values: Values | None, kinds: Mapping[str, int]) -> Row | None:
        """Return *values* from the log as a query would return them. *kinds* are their types.

        Columns that were dropped are left out. Columns with a new type are also left out, except
        for columns of the key, which are returned as text.
        """
        if values is None:
            return None
        row: Row = {}
        for name, text in values.items():
            is_current = kinds[name] == self._kinds.get(name)
            if text is None or is_current:
                row[name] = text if text is None else self._loaders[name](text)
            elif name in self._rows.keys:
                row[name] = text.decode()
        chosen = {name: each for name, each in row.items() if name in self._loaders}
        return ServerRow(chosen, values.get)

    def _query(self, query: sql.Composed | str, *values: Any) -> list[Row]:
        assert self._connection is not None
        try:
            with self._connection.cursor(row_factory=dict_row) as cursor:
                return fetch_rows(cursor.execute(query, values))
        except psycopg.errors.UndefinedTable as error:
            raise Away(f"{self}: {error}") from None

    def _do(self, query: sql.Composed) -> None:
        assert self._connection is not None
        self._connection.execute(query)


def connect(dsn: str, settings: str = "", **options: Any) -> psycopg.Connection[Any]:
    """Return a connection with the settings `SESSION` and *settings*, which are SQL statements.

    The connection returns times and JSON numbers as text if they are outside the range of Python's
    types.

    Raises:
        WrongPipeline: *dsn* is the address of a pool that would give these settings to others.
    """
    connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None, **options)
    try:
        if _is_shared(connection, dsn):
            rule = "is a pool that shares the server's sessions (transaction pooling)"
            give = "give the address of the server, or a pool that keeps a client's session"
            raise WrongPipeline(f"{without_secrets(dsn)} {rule}; {give}")
        connection.execute(SESSION + settings)
    except BaseException:
        connection.close()
        raise
    set_json_loads(parse_json, connection)
    for name in _PARTIAL:
        info = connection.adapters.types[name]
        loader = connection.adapters.get_loader(info.oid, Format.TEXT)
        assert loader is not None
        connection.adapters.register_loader(info.oid, _or_text(loader))
    return connection


def load_arrays(connection: psycopg.Connection[Any], table: str) -> None:
    """Make *connection* return arrays in *table* as lists, also those of the database's types."""
    with connection.cursor(row_factory=dict_row) as cursor:
        types = cursor.execute(_TYPES, (table,)).fetchall()
    bases = {each["oid"]: each["base"] for each in types if each["base"]}
    for each in types:
        element = each["element"]
        while element in bases:
            element = bases[element]
        if element and not connection.adapters.get_loader(each["oid"], Format.TEXT):
            info = TypeInfo(each["name"], element, each["oid"], delimiter=each["delimiter"])
            register_array(info, connection)


def _is_shared(connection: psycopg.Connection[Any], dsn: str) -> bool:
    """Return True if a pool at *dsn* gives the server's session of *connection* to other clients.

    A pool invents the process id that it sends when a client connects. If the id is not the
    server's, request the server's id again, and in a transaction of a second connection. If
    sessions are shared, both connections have the same one, or *connection* gets another one.
    """
    first = _backend(connection)
    if first == connection.info.backend_pid:
        return False
    with closing(psycopg.connect(dsn, autocommit=True, connect_timeout=CHECK_S)) as other:
        is_changed = _backend(connection) != first
        other.pgconn.send_query(f"BEGIN; {_BACKEND}".encode())
        if is_changed or not select([other], [], [], CHECK_S)[0]:
            return is_changed  # an answer is missing if other clients keep all sessions
        results = [*iter(other.pgconn.get_result, None)]
        found = [each.get_value(0, 0) for each in results if each.ntuples]
        return str(first).encode() in found or _backend(connection) != first


def _backend(connection: psycopg.Connection[Any]) -> int:
    """Return the id of the server's process that serves *connection*."""
    row = connection.cursor(row_factory=tuple_row).execute(_BACKEND).fetchone()
    assert row is not None
    return int(row[0])


def _or_text(loader: type[Any]) -> type[Loader]:
    """Return a loader like *loader* that returns a value as text if *loader* cannot load it."""

    class OrText(Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._load = loader(oid, context).load

        def load(self, data: Any) -> Any:
            try:
                return self._load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    return OrText


def _slot_of(reader: str) -> str:
    """Return the default slot name of *reader*, cut to the 63 characters that are allowed."""
    return f"tidings_{re.sub('[^a-z0-9]', '_', reader)}"[:63]


def _identifiers(columns: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, columns)) if columns else _ALL
