"""Write to a table of PostgreSQL, one row for each object."""

from __future__ import annotations

from itertools import groupby
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import blamed
from tidings.pipelines.errors import Overtaken
from tidings.pipelines.message import Message
from tidings.pipelines.names import checked_table

PORT = 5432
WRITE_TIMEOUT_MS = 60_000  # limit for a locked table: the batch fails, not the pipeline
_SHOWN = ("host", "port", "dbname")
_OF_A_MESSAGE = (psycopg.DataError, psycopg.IntegrityError, TypeError, ValueError)
_FENCES = "tidings_writers"

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
_FENCE = sql.SQL("""
    INSERT INTO {fences} AS standing (writer, fence) VALUES (%s, %s)
    ON CONFLICT (writer) DO UPDATE SET fence = excluded.fence WHERE standing.fence <= excluded.fence
    RETURNING fence""")
_PUT = sql.SQL("""
    INSERT INTO {table} (namespace, id, parents, ts, data, event_id)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (namespace, id) DO UPDATE SET parents = excluded.parents, ts = excluded.ts,
        data = excluded.data, event_id = excluded.event_id""")
_DELETE = sql.SQL("DELETE FROM {table} WHERE namespace = %s AND id = %s")
_EMPTY = sql.SQL("DELETE FROM {table}")


class Postgres:
    """
    A sink that keeps *table* of the database at *dsn* equal to the objects of the feed.

    A batch is one transaction, and a worker that was overtaken can no longer write. A reset empties
    the table, in the same transaction as the messages after it in the batch.

    Raises:
        WrongPipeline: *table* is not a simple name.
    """

    def __init__(self, dsn: str, table: str = "objects") -> None:
        self._dsn, self._table = dsn, checked_table(table)
        self._names = {"table": sql.Identifier(table), "fences": sql.Identifier(_FENCES)}
        self._connection: psycopg.Connection | None = None
        self._writer = ""

    def open(self, consumer: str) -> None:
        self._writer = f"{consumer}:{self._table}"
        with self._connected().transaction(), self._connected().cursor() as cursor:
            for statement in (_MAKE, _MAKE_FENCES):
                cursor.execute(statement.format(**self._names))

    def write(self, messages: list[Message], fence: int) -> None:
        with (
            blamed(messages, *_OF_A_MESSAGE),
            self._connected().transaction(),
            self._connected().cursor() as cursor,
        ):
            self._check(cursor, fence)
            for statement, alike in groupby(messages, _statement):
                # One round trip for consecutive messages with the same statement.
                cursor.executemany(
                    statement.format(**self._names), [_values(message) for message in alike]
                )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [table_of(self._dsn, self._table)]

    def __str__(self) -> str:
        return f"table {self._table} at {without_secrets(self._dsn)}"

    def _connected(self) -> psycopg.Connection:
        """Return the connection; reconnect if it broke."""
        if self._connection is None or self._connection.closed:
            options = f"-c statement_timeout={WRITE_TIMEOUT_MS}"
            self._connection = psycopg.connect(self._dsn, autocommit=True, options=options)
        return self._connection

    def _check(self, cursor: psycopg.Cursor, fence: int) -> None:
        cursor.execute(_FENCE.format(**self._names), (self._writer, fence))
        if cursor.fetchone() is None:
            raise Overtaken(f"a later worker than {fence} writes {self._table}")


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
    return message.namespace, message.key, parents, ts, Jsonb(message.data), message.id


def table_of(dsn: str, name: str) -> Dataset:
    """
    Return the lineage dataset of the table *name*, with or without schema, of the database *dsn*.

    Raises:
        psycopg.ProgrammingError: *dsn* is invalid.
    """
    parts = conninfo_to_dict(dsn)
    host, port = (str(parts.get(name) or "").split(",")[0] for name in ("host", "port"))
    server = "" if host.startswith("/") else host  # a folder of Unix sockets
    where = datasets.server(f"//{server}", "postgres", int(port or PORT))
    schema = "" if "." in name else "public."
    return Dataset(where, f"{parts.get('dbname') or parts.get('user', '')}.{schema}{name}")


def without_secrets(dsn: str) -> str:
    """Return the host and database of *dsn*."""
    if "://" in dsn:
        parts = urlsplit(dsn)
        return f"{parts.hostname or 'local'}{parts.path}"
    return " ".join(each for each in dsn.split() if each.split("=")[0] in _SHOWN) or "local"
