"""Write to a table of MySQL or MariaDB, one row for each object."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import blamed
from tidings.pipelines.errors import Overtaken, WrongPipeline
from tidings.pipelines.message import Message
from tidings.pipelines.names import checked_table

ANSWER_S = 60  # limit for a locked table: the batch fails, not the pipeline
PORT = 3306
_OPTIONS = ("ssl_ca", "unix_socket")
_OF_A_MESSAGE = (pymysql.DataError, pymysql.IntegrityError, TypeError, ValueError)
_FENCES = "tidings_writers"

# Names are binary: a collation would treat 'a' and 'A', or 'a' and 'a ', as one object.
_MAKE = """
    CREATE TABLE IF NOT EXISTS {table} (
        namespace varbinary(128) NOT NULL,
        id varbinary(512) NOT NULL,
        ts varchar(40) NOT NULL,
        data json NOT NULL,
        event_id char(24) NOT NULL,
        PRIMARY KEY (namespace, id)
    ) ENGINE=InnoDB CHARACTER SET utf8mb4"""
_MAKE_FENCES = f"""
    CREATE TABLE IF NOT EXISTS {_FENCES} (
        writer varbinary(255) PRIMARY KEY, fence bigint NOT NULL
    ) ENGINE=InnoDB"""
_FENCE = f"""
    INSERT INTO {_FENCES} (writer, fence) VALUES (%s, %s)
    ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))"""
_LATEST = f"SELECT fence FROM {_FENCES} WHERE writer = %s"
_PUT = """
    INSERT INTO {table} (namespace, id, ts, data, event_id) VALUES (%s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE ts = VALUES(ts), data = VALUES(data), event_id = VALUES(event_id)"""
_DELETE = "DELETE FROM {table} WHERE namespace = %s AND id = %s"
_EMPTY = "DELETE FROM {table}"


class MySQL:
    """
    A sink that keeps *table* of the database at *url* equal to the objects of the feed.

    A batch is one transaction, and a worker that was overtaken can no longer write. A reset empties
    the table, in the same transaction as the messages after it in the batch. *url* is
    `mysql://user:password@host:3306/database`, with `?unix_socket=PATH` for a socket and
    `?ssl_ca=PATH` for TLS.

    Raises:
        WrongPipeline: *url* contains no database, or *table* is not a simple name.
    """

    def __init__(self, url: str, table: str = "objects") -> None:
        self._server, self._shown = server_of(url)
        self._table = checked_table(table)
        self._connection: pymysql.Connection[Any] | None = None
        self._writer = ""

    def open(self, consumer: str) -> None:
        self._writer = f"{consumer}:{self._table}"
        with self._connected().cursor() as cursor:
            for statement in (_MAKE, _MAKE_FENCES):
                cursor.execute(statement.format(table=self._table))

    def write(self, messages: list[Message], fence: int) -> None:
        connection = self._connected()
        connection.begin()
        try:
            with blamed(messages, *_OF_A_MESSAGE), connection.cursor() as cursor:
                self._check(cursor, fence)
                for statement, alike in groupby(messages, _statement):
                    values = [_values(message) for message in alike]
                    cursor.executemany(statement.format(table=self._table), values)
            connection.commit()
        except BaseException:
            connection.close()  # rolls back in any state
            raise

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [table_of(self._server, self._table)]

    def __str__(self) -> str:
        return f"table {self._table} at {self._shown}"

    def _connected(self) -> pymysql.Connection[Any]:
        """Return the connection; reconnect if it broke or the server closed it."""
        if self._connection is not None:
            with suppress(pymysql.Error):
                self._connection.ping(reconnect=False)
                return self._connection
        self._connection = pymysql.connect(
            **self._server,
            sql_mode="STRICT_ALL_TABLES",  # values that do not fit are rejected, not truncated
            read_timeout=ANSWER_S,
            write_timeout=ANSWER_S,
        )
        return self._connection

    def _check(self, cursor: Any, fence: int) -> None:
        """
        Raise `Overtaken` if a later worker has written; lock the row until the transaction ends.
        """
        cursor.execute(_FENCE, (self._writer, fence))
        cursor.execute(_LATEST, (self._writer,))
        ((latest,),) = cursor.fetchall()
        if latest > fence:
            raise Overtaken(f"worker {latest} writes {self._table}, a later one than {fence}")


def server_of(url: str) -> tuple[dict[str, Any], str]:
    """
    Return pymysql's arguments for the database at *url*, and the address to show to people.

    Raises:
        WrongPipeline: *url* contains no database.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("mysql", "mariadb") or not parts.path.strip("/"):
        raise WrongPipeline("url must be mysql://user:password@host/database")
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := options.keys() - _OPTIONS:
        raise WrongPipeline(f"url has options other than {_OPTIONS}: {sorted(unknown)}")
    server = {
        **options,
        "host": parts.hostname or "localhost",
        "port": parts.port or PORT,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.strip("/")),
        "charset": "utf8mb4",
        "autocommit": True,
    }
    return server, f"{parts.hostname or 'local'}{parts.path}"


def table_of(server: dict[str, Any], name: str) -> Dataset:
    """Return the lineage dataset of the table *name* in the database of *server* (`server_of`)."""
    where = datasets.server(f"//{server['host']}", "mysql", server["port"])
    return Dataset(where, f"{server['database']}.{name}")


def _statement(message: Message) -> str:
    if message.is_command:
        return _EMPTY
    return _DELETE if message.is_gone else _PUT


def _values(message: Message) -> tuple[object, ...]:
    if message.is_command:
        return ()
    names = message.namespace.encode(), message.key.encode()
    if message.is_gone:
        return names
    text = json.dumps(message.data, allow_nan=False, separators=(",", ":"))
    return *names, message.ts, text, message.id
