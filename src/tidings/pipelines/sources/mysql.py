"""Read a table of MySQL or MariaDB: copy it, then follow the binary log."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pymysql
from pymysql.cursors import DictCursor
from pymysqlreplication import BinLogStreamReader  # type: ignore[import-untyped]
from pymysqlreplication.event import (  # type: ignore[import-untyped]
    HeartbeatLogEvent,
    QueryEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (  # type: ignore[import-untyped]
    DeleteRowsEvent,
    RowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import (
    BATCH,
    COMPLETE,
    COPY,
    Batch,
    Known,
    Standing,
    batches,
)
from tidings.pipelines.sinks.mysql import server_of, table_of
from tidings.pipelines.sources.documents import Keyed, Row, plain

LOOK_S = 0.3  # how long changes are collected: they are in the feed within a second
ANSWER_S = 60  # limit without any packet, not even a heartbeat: the server is not available
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,63}", re.ASCII)
_EVENTS = (
    WriteRowsEvent,
    UpdateRowsEvent,
    DeleteRowsEvent,
    XidEvent,
    QueryEvent,
    HeartbeatLogEvent,
)
_WANTED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL"}
_WANTED |= {"binlog_row_metadata": "FULL"}  # the names and types of columns
_PARSE_ERROR = 1064
_FIXED = """SELECT column_name AS name, character_maximum_length AS size
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = %s AND data_type = 'binary'"""
_TRUNCATED = re.compile(r"\s*TRUNCATE\s+(?:TABLE\s+)?(?:`?(\w+)`?\s*\.\s*)?`?([\w$]+)`?", re.I)

# The log contains a transaction before its rows are visible: a lock waits for it.
_LOCKED = "LOCK IN SHARE MODE"
_SESSION = (
    "SET time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",  # locks rows, not gaps
)

Values = tuple[Any, ...]


class MySQLTable:
    """
    A source of the rows of *table* of the database at *url*.

    They are objects of *type* (default: the table's name). *key* names the columns of their id,
    joined by `/`. With *follow* later changes are read, too. Each changed row is read as it is when
    its change is processed, so several changes of a row may appear as one. This requires
    `binlog_format=ROW`, `binlog_row_image=FULL` and `binlog_row_metadata=FULL`, a user with
    `REPLICATION SLAVE` and `REPLICATION CLIENT`, and a *server_id* that no other replica of the
    server has; the default is derived from the names of pipeline and reader. Without *follow* the
    table is copied once.

    Raises:
        WrongPipeline: *url* contains no database, *table* or *key* is not a simple name, or no key
            is given.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        type: str = "",
        key: str | Sequence[str] = "id",
        follow: bool = True,
        server_id: int = 0,
    ) -> None:
        self._server, self._shown = server_of(url)
        self._rows = Keyed(table, key, type)
        for name in (table, *self._rows.keys):
            if not _NAME.fullmatch(name):
                raise WrongPipeline(f"must be a name of letters, digits, '_' and '$': {name!r}")
        self._follow, self._server_id = follow, server_id
        self._standing: Mapping[str, Any] = {}
        self._replicated = 0  # id of the server that writes the log
        self._connection: pymysql.Connection[Any] | None = None
        self._log: Any = None

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Connect, and resume at *standing*.

        Raises:
            WrongPipeline: the server has no binary log that can be followed.
        """
        self._server_id = self._server_id or zlib.crc32(name.encode()) | 1 << 31
        self._standing, self._known = dict(standing.get(self._rows.type, {})), known
        self._connection = pymysql.connect(
            **self._server, cursorclass=DictCursor, read_timeout=ANSWER_S
        )
        for statement in _SESSION:
            self._asked(statement)
        if self._follow:
            self._look_at_log()

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a row has no key.
            pymysql.Error: the server is not available, or rejects a query.
        """
        if self._follow and not self._standing:
            self._standing = {"mode": COPY, **self._end_of_log()}
        if self._standing.get("mode") != COMPLETE:
            yield from self._copied()
        if self._follow:
            yield from self._changes()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [table_of(self._server, self._rows.name)]

    def __str__(self) -> str:
        return f"table {self._rows.name} at {self._shown}"

    def _look_at_log(self) -> None:
        """
        Check the server's settings; start over if the log file is missing or of another server.
        """
        for name, wanted in _WANTED.items():
            found = self._asked("SHOW GLOBAL VARIABLES LIKE %s", name)
            value = str(found[0]["Value"]) if found else "absent"
            if value.upper() != wanted:
                rule = f"to be followed the server must run with {name}={wanted}"
                raise WrongPipeline(f"{self}: {rule}, not {value}; or give follow=False")
        self._sizes = {each["name"]: each["size"] for each in self._asked(_FIXED, self._rows.name)}
        files = {each["Log_name"] for each in self._asked("SHOW BINARY LOGS")}
        (found_id,) = self._asked("SELECT @@server_id AS id")
        self._replicated = found_id["id"]
        there = self._standing.get("file") in files
        if not there or self._standing.get("server") != self._replicated:
            self._standing = {}

    def _end_of_log(self) -> dict[str, Any]:
        try:
            (found,) = self._asked("SHOW BINARY LOG STATUS")
        except pymysql.ProgrammingError as error:
            if error.args[0] != _PARSE_ERROR:
                raise
            (found,) = self._asked("SHOW MASTER STATUS")  # before MySQL 8.2, and MariaDB
        return self._place(found["File"], found["Position"])

    def _place(self, file: str, position: int) -> dict[str, Any]:
        return {"server": self._replicated, "file": file, "position": position}

    def _copied(self) -> Iterator[Batch]:
        """
        Yield all rows by key, from the last position; the log contains changes made since the
        start.
        """
        while rows := self._page(self._standing.get("at")):
            last = [rows[-1][each] for each in self._rows.keys]
            self._standing = {**self._standing, "mode": COPY, "at": [*map(_written, last)]}
            puts = [self._rows.put(row, row) for row in rows]
            yield Batch(puts, {self._rows.type: self._standing})
        rest = {name: each for name, each in self._standing.items() if name != "at"}
        self._standing = {**rest, "mode": COMPLETE}
        yield Batch([], {self._rows.type: self._standing})

    def _page(self, after: Sequence[Any] | None) -> list[Row]:
        """
        Return the next rows after the key *after*; compare several columns from the first one on.
        """
        names = [f"`{each}`" for each in self._rows.keys]
        last = [_parsed(each) for each in after or ()]
        behind, values = list[str](), list[Any]()
        for at, name in enumerate(names if last else ()):
            behind.append(" AND ".join([*(f"{each} = %s" for each in names[:at]), f"{name} > %s"]))
            values += last[: at + 1]
        where = f"WHERE {' OR '.join(f'({each})' for each in behind)}" if behind else ""
        order = f"ORDER BY {', '.join(names)} LIMIT {BATCH}"
        return self._asked(f"SELECT * FROM `{self._rows.name}` {where} {order} {_LOCKED}", *values)

    def _changes(self) -> Iterator[Batch]:
        """
        Yield the changes in the log, each batch with the end of the last transaction before it.
        """
        changed, told_s, end = dict[str, Values](), time.monotonic(), self._standing
        for event in self._events():
            if isinstance(event, RowsEvent):
                changed |= self._keys(event)
            elif isinstance(event, QueryEvent) and self._is_truncation(event):
                yield from batches(self._now(changed), {})
                changed = {}
                yield from self._emptied()
            if isinstance(event, (XidEvent, HeartbeatLogEvent)):
                end = self._place(self._log.log_file, self._log.log_pos)
            is_due = isinstance(event, HeartbeatLogEvent) or time.monotonic() - told_s > LOOK_S
            if not is_due and len(changed) < BATCH:
                continue
            # Store the new file name: the server may remove a file after it was read.
            if changed or end["file"] != self._standing["file"]:
                yield from self._told(changed, end)
            else:
                self._asked("DO 0")  # the server closes a connection that is idle for hours
                yield Batch()
            changed, told_s = {}, time.monotonic()

    def _events(self) -> Iterator[Any]:
        """Yield the events of the log without end; a heartbeat if nothing is new."""
        self._log = BinLogStreamReader(
            {**self._server, "read_timeout": ANSWER_S},
            self._server_id,
            blocking=True,
            resume_stream=True,
            log_file=self._standing["file"],
            log_pos=self._standing["position"],
            only_events=_EVENTS,
            only_schemas=[self._server["database"]],
            only_tables=[self._rows.name],
            slave_heartbeat=LOOK_S,
            enable_logging=False,
        )
        yield from self._log

    def _keys(self, event: Any) -> dict[str, Values]:
        """Return the keys before and after each change in *event*, by object id."""
        found = {}
        for row in event.rows:
            for values in (row.get("values"), row.get("before_values"), row.get("after_values")):
                if values is not None:
                    key = {each: self._padded(each, values.get(each)) for each in self._rows.keys}
                    found[self._rows.id(key)] = tuple(key.values())
        return found

    def _padded(self, column: str, value: Any) -> Any:
        """Restore the trailing zeros of a value of fixed size, which the log leaves out."""
        return value.ljust(self._sizes[column], b"\0") if column in self._sizes else value

    def _told(self, changed: Mapping[str, Values], end: Mapping[str, Any]) -> Iterator[Batch]:
        self._standing = {"mode": COMPLETE, **end}
        yield from batches(self._now(changed), {self._rows.type: self._standing})

    def _now(self, changed: Mapping[str, Values]) -> list[dict[str, Any]]:
        """
        Return the operations for these rows as they are now: an insert, or a delete if missing.
        """
        if not changed:
            return []
        same = " AND ".join(f"`{each}` = %s" for each in self._rows.keys)
        where = " OR ".join([f"({same})"] * len(changed))
        values = [each for key in changed.values() for each in key]
        query = f"SELECT * FROM `{self._rows.name}` WHERE {where} {_LOCKED}"
        rows = {self._rows.id(row): row for row in self._asked(query, *values)}
        return [
            self._rows.put(rows[name], rows[name]) if name in rows else self._rows.gone(name)
            for name in changed
        ]

    def _is_truncation(self, event: Any) -> bool:
        database, found = event.schema.decode(), _TRUNCATED.match(event.query)
        if found is None or found[2] != self._rows.name:
            return False
        return bool((found[1] or database) == self._server["database"])

    def _emptied(self) -> Iterator[Batch]:
        names = self._known(self._rows.type)
        yield from batches([self._rows.gone(name) for name in names], {})

    def _asked(self, query: str, *values: Any) -> list[Row]:
        assert self._connection is not None
        with self._connection.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())


def _written(value: Any) -> Any:
    """Return a part of a key as JSON, from which `_parsed` restores it for a query."""
    return {"hex": value.hex()} if isinstance(value, bytes) else plain(value)


def _parsed(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
