"""Write to a table of MySQL or MariaDB; read a table: copy it, then follow the binary log."""

from __future__ import annotations

import math
import re
import struct
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import pymysql
from pymysql.cursors import DictCursor
from pymysql.protocol import MysqlPacket
from pymysqlreplication import BinLogStreamReader  # type: ignore[import-untyped]
from pymysqlreplication.event import (  # type: ignore[import-untyped]
    BeginLoadQueryEvent,
    ExecuteLoadQueryEvent,
    HeartbeatLogEvent,
    QueryEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (  # type: ignore[import-untyped]
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    RowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import blame_message
from tidings.pipelines.documents import DELETES_MAX, Keyed, Row, to_json_value, to_text
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
from tidings.pipelines.row_rules import LARGE_BYTES, LARGE_ROWS, STOP, Names

ANSWER_S = 60  # the limit of a wait for a locked table, or for the next packet of the log
PORT = 3306
_OPTIONS = ("ssl_ca", "unix_socket")
COUNT_S = 3600  # the limit of a count, which reads the whole table
# A batch is repeated if it waits for a row or table for longer, so that a stop has an effect.
LOCK_S = 1
_INIT = f"SET SESSION innodb_lock_wait_timeout = {LOCK_S}, lock_wait_timeout = {LOCK_S}"

# The columns `namespace` and `id` are binary, because a collation would treat 'a' and 'A', or 'a'
# and 'a ', as one object.
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
    CREATE TABLE IF NOT EXISTS {FENCES} (
        writer varbinary(255) PRIMARY KEY, fence bigint NOT NULL
    ) ENGINE=InnoDB"""
_MAKE_MARKS = f"""
    CREATE TABLE IF NOT EXISTS {MARKS} (
        target varchar(64) PRIMARY KEY, incarnation varchar(40) NOT NULL, mark text NOT NULL
    ) ENGINE=InnoDB CHARACTER SET utf8mb4"""
# The incarnation and the comment of a table.
_STATE = """SELECT coalesce(CAST(create_time AS CHAR), '-'), table_comment
    FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"""
# This statement protects the table from a change of its mark until the transaction ends.
_HOLD = "SELECT 1 FROM {table} LIMIT 1"
MARK_WAIT_S = 5  # a mark that waits longer for a transaction delays all others; then the row counts
# Write the fence, unless a later one is there, and count the batch: the second row begins with 1.
_FENCE = f"""
    INSERT INTO {FENCES} (writer, fence) VALUES (%(writer)s, %(fence)s), (%(counter)s, 1)
    ON DUPLICATE KEY UPDATE
        fence = IF(writer = %(counter)s, fence + 1, GREATEST(fence, VALUES(fence)))"""
_LATEST = f"SELECT fence FROM {FENCES} WHERE writer IN (%s, %s) ORDER BY writer"
_PUT = """
    INSERT INTO {table} (namespace, id, ts, data, event_id) VALUES (%s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE ts = VALUES(ts), data = VALUES(data), event_id = VALUES(event_id)"""
_DELETE = "DELETE FROM {table} WHERE namespace = %s AND id = %s"
_EMPTY = "DELETE FROM {table}"
# MariaDB and MySQL each ignore the other's way to remove the limit of a statement.
_COUNT = """/*M! SET STATEMENT max_statement_time = 0 FOR */
    SELECT /*+ MAX_EXECUTION_TIME(0) */ count(*) FROM {table}"""


class MySQL(OwnedStore):
    """A sink that keeps *table* of the database at *url* equal to the objects of the feed.

    A batch is one transaction. After a later worker has written, an earlier worker can no longer
    write. A reset empties the table, in the same transaction as the messages after it in the batch.
    The table is marked with its consumer (`ownership`), in its comment and in `tidings_marks`.
    *url* is `mysql://user:password@host:3306/database`, with `?unix_socket=PATH` for a socket and
    `?ssl_ca=PATH` for TLS.

    Raises:
        WrongPipeline: *url* contains no database, or *table* is not a simple name.
    """

    def __init__(self, url: str, table: str = "objects") -> None:
        self._server, self._shown = server_of(url)
        self._table = checked_table(table)
        self._connection: pymysql.Connection[Any] | None = None

    def open(self, consumer: str) -> None:
        self._own(consumer)
        with self._open_connection().cursor() as cursor:
            reason = self._claim(self.inspect())
            for statement in (_MAKE, _MAKE_FENCES, _MAKE_MARKS):
                cursor.execute(statement.format(table=self._table))
            if reason == ADOPTED:
                self._marks(cursor).adopt(self.written)
            if reason != OURS:
                self._mark(cursor)

    def inspect(self) -> Target:
        with self._open_connection().cursor() as cursor:
            target = self._marks(cursor).target(str(self), self._table)
            return replace(target, count=self.count)

    def count(self) -> int:
        with (
            closing(pymysql.connect(**self._server, read_timeout=COUNT_S)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(_COUNT.format(table=self._table))
            return int(cursor.fetchall()[0][0])

    def write(self, messages: list[Message], fence: int) -> None:
        connection = self._open_connection()
        connection.begin()
        try:
            with blame_message(messages), connection.cursor() as cursor:
                written = self._check(cursor, fence)
                cursor.execute(_HOLD.format(table=self._table))
                self._verify(self._marks(cursor).read(), written - 1)
                for statement, alike in groupby(messages, _statement):
                    values = [_values(message) for message in alike]
                    cursor.executemany(statement.format(table=self._table), values)
            connection.commit()
        except BaseException:
            connection.close()  # this rolls back in any state of the connection
            raise
        self.written = written

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [table_of(self._server, self._table)]

    def __str__(self) -> str:
        return f"table {self._table} at {self._shown}"

    @property
    def _writer(self) -> str:
        return f"{self._owner.consumer}:{self._table}"

    def _marks(self, cursor: Any) -> TableMarks:
        def run(statement: str, *values: object) -> Any:
            cursor.execute(statement, values)
            return cursor.fetchall()

        return TableMarks(run, _STATE, self._table, self._writer)

    def _mark(self, cursor: Any) -> None:
        marks, mark = self._marks(cursor), self._owner.mark
        comment = f"ALTER TABLE {self._table} COMMENT = %s", (marks.comment(mark),)
        cursor.execute("SET SESSION lock_wait_timeout = %s", (MARK_WAIT_S,))
        with suppress(pymysql.Error):  # the right is missing, or the table is in use
            cursor.execute(*comment)
        cursor.execute(_INIT)
        marks.record(mark)  # last, because an altered table has another time of creation

    def _open_connection(self) -> pymysql.Connection[Any]:
        """Return the connection. Connect again if it broke or the server closed it."""
        if self._connection is not None:
            with suppress(pymysql.Error):
                self._connection.ping(reconnect=False)
                return self._connection
        self._connection = pymysql.connect(
            **self._server,
            sql_mode="STRICT_ALL_TABLES",  # the server rejects values that it would truncate
            init_command=_INIT,
            read_timeout=ANSWER_S,
            write_timeout=ANSWER_S,
        )
        return self._connection

    def _check(self, cursor: Any, fence: int) -> int:
        """Store the fence, and return the number of batches, with this one.

        This statement locks the fence's row until the transaction ends.
        """
        counter = self._marks(cursor).counter
        cursor.execute(_FENCE, {"writer": self._writer, "fence": fence, "counter": counter})
        cursor.execute(_LATEST, (self._writer, counter))
        (latest,), (written,) = cursor.fetchall()
        if latest > fence:
            raise Overtaken(f"worker {latest} writes {self._table}; it has replaced worker {fence}")
        return int(written)


def server_of(url: str) -> tuple[dict[str, Any], str]:
    """Return pymysql's arguments for the database at *url*, and the address to show to people.

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
    text = to_text(message.data, allow_nan=False)
    return *names, message.ts, text, message.id


_DUMP = 0x12  # the command that makes the server send events of the log
# The header of an event: timestamp, type, server, size, position of the next event, flags.
_HEADER = struct.Struct("<IBIIIH")
_FORMAT, _QUERY, _PAYLOAD, _INCIDENT, _HEARTBEAT = 15, 2, 40, 26, 27
_UNREADABLE, _BROKEN = 1236, (2006, 2013)  # the codes of errors: at the position; no connection
_NEVER_S = -1
_SAME_ID = "server_uuid/server_id"  # this error is not about the position
_IGNORABLE = 0x80  # the flag of an event that a reader may skip if it does not know the type
# Compressed event types of MariaDB, and the types of the events that they contain.
_COMPRESSED = {165: _QUERY, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_UPDATES, _VERSION_2 = (24, 31), (30, 31, 32)
_KNOWN = {2, 3, 4, 5, 13, 14, 15, 16, 17, 18, 19, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33, 34, 35}
_KNOWN |= {36, 37, 38, 39, 41, 160, 161, 162, 163, 164}
_QUERY_FIELDS = 13  # the bytes before the status variables in a query event
_ROWS_FIELDS = 8  # the bytes for the table and the flags in a rows event
_ZSTD, _NONE = 0, 255  # the codes of the compressions of a transaction
_COMPRESSION_FIELD, _END_FIELD = 2, 0


class _OtherLog(Exception):
    """The log does not have what it had at the stored position."""


class LogConnection(pymysql.Connection):
    """A connection that decompresses the events of the log.

    *expected* is the identity of the log at the position from which it is read (`identity_at`), or
    empty. The first event is then the one before the position, and is left out.
    """

    _is_dump = False
    _checksum = 0  # the size in bytes of the checksum after each event

    def __init__(self, *, expected: Sequence[int] = (), **options: Any) -> None:
        self._expected, self._is_begun = list(expected), False
        self._file_s, self._event = 0, (0, 0, 0)
        super().__init__(**options)

    def identity_at(self, position: int) -> list[int]:
        """Return when the log file was begun, and the place and the checksum of its last event.

        The event is left out if it does not end at *position*.
        """
        begin, end, checksum = self._event
        return [self._file_s, *([begin, checksum] if end == position else [])]

    def _write_bytes(self, data: bytes) -> None:
        self._is_dump = data[4:5] == bytes([_DUMP])
        self._waiting: deque[bytes] = deque()
        super()._write_bytes(data)  # type: ignore[misc]

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        if not self._is_dump:
            return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        while not self._waiting:
            try:
                packet = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
            except pymysql.MySQLError as error:
                raise self._reason(error) from None
            data: bytes = packet.get_all_data()
            if data[0] != 0:
                return packet  # an error, or the end of the log
            if self._is_new(data):
                self._waiting.extend(expand_packet(data, self._checksum))
        return packet_type(self._waiting.popleft(), self.encoding)

    def _is_new(self, data: bytes) -> bool:
        """Remember the identity of an event; return False if it is before the position."""
        time_s, kind, _, size, end, _ = _HEADER.unpack_from(data, 1)
        if kind == _FORMAT:
            self._checksum = 4 if data[-5] == 1 else 0
            self._file_s, self._event = time_s, (0, 0, 0)
            found, self._expected = self._expected[:1], self._expected[1:]
            if found not in ([], [time_s]):
                raise _OtherLog(f"the log file was begun at {time_s}, not at {found[0]}")
            return True
        if kind == _HEARTBEAT or not end:
            return True
        self._event = end - size, end, zlib.crc32(data[1 : len(data) - self._checksum])
        expected, self._expected, self._is_begun = self._expected, [], True
        if expected not in ([], [self._event[0], self._event[2]]):
            raise _OtherLog(f"the log has another event at the position {end - size}")
        return not expected

    def _reason(self, error: pymysql.MySQLError) -> Exception:
        """Return the error to raise instead of *error* of the server or the connection."""
        code, text = (*error.args, "")[:2]
        if code == _UNREADABLE and not self._is_begun and _SAME_ID not in text:
            return _OtherLog(text)
        # The library would connect again by itself, and not compare the identity.
        return Away(text) if code in _BROKEN else error


def expand_packet(packet: bytes, checksum: int) -> Iterator[bytes]:
    """Yield the events in *packet*, each as a packet of its own, uncompressed.

    *checksum* is the size of the checksum at the end of a packet.

    Raises:
        WrongPipeline: the type of an event or its compression is unknown.
    """
    timestamp, kind, server, _, position, flags = _HEADER.unpack_from(packet, 1)
    start, end = 1 + _HEADER.size, len(packet) - checksum
    if kind == _PAYLOAD:
        events = list(_events(_transaction(packet[start:end])))
        for number, (header, body) in enumerate(events, 1):
            # Only the last event of the transaction has a position, because the log cannot be
            # resumed within a transaction.
            place = position if number == len(events) else 0
            size = _HEADER.size + len(body) + checksum
            fields = _HEADER.unpack(header)
            head = _HEADER.pack(*fields[:3], size, place, fields[5])
            yield b"\0" + head + body + b"\0" * checksum
    elif kind in _COMPRESSED:
        body = _decompress(packet[start:end], _COMPRESSED[kind])
        size = _HEADER.size + len(body) + checksum
        head = _HEADER.pack(timestamp, _COMPRESSED[kind], server, size, position, flags)
        yield b"\0" + head + body + packet[end:]
    elif kind in _KNOWN or flags & _IGNORABLE:
        yield packet
    else:
        what = "lacks changes (incident)" if kind == _INCIDENT else f"has an unknown event {kind}"
        rule = "rename the reader, so that it copies the table again"
        raise WrongPipeline(f"the binary log {what}; {rule}")


def _decompress(body: bytes, kind: int) -> bytes:
    """Decompress the body of an event of MariaDB; *kind* is the type of the result."""
    if kind == _QUERY:
        database, status = body[8], int.from_bytes(body[11:13], "little")
        at = _QUERY_FIELDS + status + database + 1
    else:
        extra = int.from_bytes(body[8:10], "little") if kind in _VERSION_2 else 0
        columns, at = _number(body, _ROWS_FIELDS + extra)
        at += (columns + 7) // 8 * (2 if kind in _UPDATES else 1)
    if body[at] & 0x70:
        raise WrongPipeline(f"the binary log has an unknown compression {body[at]:#x}")
    return body[:at] + zlib.decompress(body[at + 1 + (body[at] & 7) :])


def _transaction(body: bytes) -> bytes:
    """Decompress the events of a transaction of MySQL."""
    at, compression = 0, _NONE
    while True:
        field, at = _number(body, at)
        if field == _END_FIELD:
            break
        size, at = _number(body, at)
        if field == _COMPRESSION_FIELD:
            compression, _ = _number(body, at)
        at += size
    if compression == _NONE:
        return body[at:]
    if compression != _ZSTD:
        raise WrongPipeline(f"the binary log has an unknown compression {compression}")
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(body[at:], read_across_frames=True) as stream:
        return stream.read()


def _events(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the header and the body of each event in *data*."""
    at = 0
    while at < len(data):
        size = _HEADER.unpack_from(data, at)[3]
        yield data[at : at + _HEADER.size], data[at + _HEADER.size : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the length-encoded integer at the offset *at*, and the offset after it."""
    sizes = {252: 2, 253: 3, 254: 8}
    size = sizes.get(data[at])
    if size is None:
        return data[at], at + 1
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


LOOK_S = 0.3  # the time to collect changes; it is short, so that a change is soon in the feed
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,63}", re.ASCII)
_STATEMENTS = (BeginLoadQueryEvent, ExecuteLoadQueryEvent)
_ROWS = (WriteRowsEvent, UpdateRowsEvent, PartialUpdateRowsEvent, DeleteRowsEvent)
_EVENTS = (*_ROWS, XidEvent, QueryEvent, HeartbeatLogEvent, *_STATEMENTS)
_WANTED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL"}
_WANTED |= {"binlog_row_metadata": "FULL"}  # the log then has the names and types of columns
_PARSE_ERROR, _NO_TABLE, _NO_COLUMN, _DENIED = 1064, 1146, 1054, (1044, 1142, 1227)
_COLUMNS = """SELECT column_name AS name, data_type AS kind, character_maximum_length AS size,
    character_set_name AS charset, column_type LIKE '%% COMPRESSED*/' AS compressed,
    extra LIKE '%%INVISIBLE%%' AS invisible
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = %s"""
_TABLE = """SELECT table_schema AS base, table_name AS name, table_type AS kind
    FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"""
_KEYS = """SELECT index_name AS name, column_name AS part, sub_part IS NULL AS whole
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = %s
    AND non_unique = 0 ORDER BY index_name, seq_in_index"""
_CASCADES = """SELECT r.unique_constraint_schema AS base, r.referenced_table_name AS name,
    u.referenced_column_name AS part, r.delete_rule AS on_delete, r.update_rule AS on_update
    FROM information_schema.referential_constraints r
    JOIN information_schema.key_column_usage u ON u.constraint_schema = r.constraint_schema
    AND u.constraint_name = r.constraint_name AND u.table_name = r.table_name
    WHERE r.constraint_schema = %s AND r.table_name = %s"""
_RESTRICTED = ("RESTRICT", "NO ACTION")
_COMMENT = re.compile(r"/\*(?![!M]).*?\*/|/\*M?!\d*|\*/|--[ \t][^\n]*|#[^\n]*", re.S)
_FIRST = re.compile(r"[\s(]*(\w+)")
_UUID_BYTES = 16  # the server returns no size for this type
# Types and character sets that a key column must not have. Values of the types `_INEXACT` cannot be
# compared exactly in a query. Values of `_OTHERWISE_IN_LOG` have another form in the log than in
# the result of a query.
_INEXACT = {"float", "bit"}
_OTHERWISE_IN_LOG = {"set", "inet4", "inet6", "swe7", "ucs2", "utf16", "utf16le", "utf32"}
# Values that the reader of the log returns for a zero, which is outside of the range of the type.
_ZEROS: dict[str, dict[Any, Any]] = {"year": {1900: 0}, "timestamp": {datetime(1970, 1, 1): None}}
_RAW = "latin-1"  # each byte is one character
# Python cannot decode some texts that the server accepts, so texts in the log are not decoded.
RowsEvent.charset_to_encoding = staticmethod(lambda _: _RAW)
# Statements after which the table need not be copied again, because the log has each row that they
# change.
_HARMLESS = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "GRANT", "REVOKE"}
_HARMLESS |= {"ANALYZE", "OPTIMIZE", "CHECK", "FLUSH"}
# Statements that a session with `binlog_format=STATEMENT` logs instead of the rows that they
# change.
_WRITES = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT"}

# The log contains a transaction before its rows are visible. A query with a lock waits until the
# rows are visible.
_LOCKED = "LOCK IN SHARE MODE"
READ_LOCK_S = 5  # a reader that waits longer for a row or table says so, and tries again
_SESSION = (
    f"SET SESSION innodb_lock_wait_timeout = {READ_LOCK_S}, lock_wait_timeout = {READ_LOCK_S}",
    "SET time_zone = '+00:00'",
    # At this level, a query with a lock locks rows, but not the gaps between them.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)

# The event of a changed object, if its row exists, and the key of the row.
_Change = tuple[str, tuple[Any, ...]]


class _Altered(Exception):
    """The table no longer has a column of its key."""


class MySQLTable:
    """A source that reads the rows of *table* of the database at *url*.

    Each row is an object of *type* (default: the table's name). *key* names the columns that form
    an object's id (default: the primary key). The table is copied. If *follow*, later changes are
    read, too.

    A changed row is queried when its change is processed, so several changes of a row may appear as
    one change. To follow a table, the server needs `binlog_format=ROW`, `binlog_row_image=FULL` and
    `binlog_row_metadata=FULL`, and the user needs `REPLICATION SLAVE` and `REPLICATION CLIENT`.
    *server_id* must be an id that no other replica of the server has. Its default is derived from
    the names of the pipeline and the reader.

    If a statement may have changed rows without an entry in the log, or if the log no longer
    contains the position, the table is copied again, and objects of this reader without a row are
    deleted. The reader stops before it deletes more than 10 % of them and more than *max_deletes*.

    *columns* or *exclude* select columns, and *too_large* is the rule for large rows (`RowRules`).

    Raises:
        WrongPipeline: *url* contains no database, or *table* or *key* is not a simple name.
    """

    is_copy = True

    def __init__(
        self,
        url: str,
        table: str,
        *,
        type: str = "",
        key: str | Sequence[str] = (),
        follow: bool = True,
        server_id: int = 0,
        max_deletes: int = DELETES_MAX,
        columns: Names = (),
        exclude: Names = (),
        too_large: str = STOP,
    ) -> None:
        self._server, self._shown = server_of(url)
        self._rows = Keyed(table, key, type, max_deletes, columns, exclude, too_large)
        self.refit = self._rows.refit
        for name in (table, *self._rows.keys):
            if not _NAME.fullmatch(name):
                rule = "must be a table or column name of letters, digits, '_' and '$'"
                raise WrongPipeline(f"{rule}: {name!r}")
        self._follow, self._server_id = follow, server_id
        self._is_key_given = bool(self._rows.keys)
        self._state: Mapping[str, Any] = {}
        self._replicated = 0  # the id of the server that writes the log
        self._connection: pymysql.Connection[Any] | None = None
        self._log: Any = None

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        """Connect, and resume at *state*.

        Raises:
            WrongPipeline: the table cannot be read or followed. The message has each reason.
            Away: the table was read before and is missing.
        """
        self._server_id = self._server_id or zlib.crc32(name.encode()) | 1 << 31
        self._state, self._known = dict(state.get(self._rows.type, {})), known
        self._connect()
        if problems := self._problems():
            raise WrongPipeline(f"{self}: {'; '.join(problems)}")
        if self._follow and not self._is_resumable():
            self._state = {"again": True} if self._state else {}

    def read(self) -> Iterator[Batch]:
        """Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a row has no key, or the log cannot be read.
            Away: the table is missing. When it exists again, it is copied again.
            pymysql.Error: the server is not available, or rejects a query.
        """
        if self._follow and "file" not in self._state:
            again = self._state.get("again", False)
            self._state = {"mode": COPY, "again": again, **self._end_of_log()}
        while True:
            if self._state.get("mode") != COMPLETE:
                yield from self._copy()
            if not self._follow:
                return
            try:
                yield from self._changes()
            except _OtherLog:
                self._close_log()
                self._state = self._end_of_log()
            except _Altered:
                pass
            self._close_log()
            if problems := self._problems():
                raise WrongPipeline(f"{self}: {'; '.join(problems)}")
            names = {"key": list(self._rows.keys), "fields": self._rows.fields}
            self._state = {**self._state, "mode": COPY, "again": True, **names}
            yield Batch([], {self._rows.type: self._state})

    def close(self) -> None:
        self._close_log()
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [table_of(self._server, self._rows.name)]

    def check(self, name: str) -> tuple[list[str], list[str]]:
        """Return the problems that prevent the reader *name* from reading, and the grants it needs.

        Raises:
            pymysql.Error: the server is not available.
        """
        self._connect()
        try:
            problems = self._problems()
            problems = problems or self._rows.problems_of_size(name, self._large_rows)
            ((me,),) = (each.values() for each in self._query("SELECT CURRENT_USER()"))
        finally:
            self.close()
        user = "@".join(f"'{part}'" for part in str(me).rsplit("@", 1))
        grants = [f"GRANT SELECT ON {self._server['database']}.{self._rows.name} TO {user};"]
        if self._follow:
            grants += [f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user};"]
        return problems, grants

    def __str__(self) -> str:
        return f"table {self._rows.name} at {self._shown}"

    def _connect(self) -> None:
        self._connection = pymysql.connect(
            **self._server, cursorclass=DictCursor, read_timeout=ANSWER_S
        )
        for statement in _SESSION:
            self._query(statement)

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _problems(self) -> list[str]:
        """Return each reason why the table cannot be read, with its remedy."""
        kind, found = self._look_at_table(), [*self._problems_of_columns()]
        if not self._follow or found:
            return found
        if kind not in ("BASE TABLE", "SYSTEM VERSIONED"):
            found.append(f"a {kind.lower()} cannot be followed; give follow=False")
        elif not any(set(self._rows.keys) >= columns for columns in self._unique.values()):
            found.append(
                f"the key ({', '.join(self._rows.keys)}) is not unique; add a unique index"
            )
        for name, wanted in _WANTED.items():
            settings = self._query("SHOW GLOBAL VARIABLES LIKE %s", name)
            value = str(settings[0]["Value"]) if settings else "absent"
            if value.upper() != wanted:
                rule = f"to follow it, the server must run with {name}={wanted}"
                found.append(f"{rule}, not {value}; or give follow=False")
        return found or [*self._problems_of_log()]

    def _problems_of_columns(self) -> Iterator[str]:
        published = self._state.get("fields", self._visible) if self._state else None
        yield from self._rows.choose(self._visible, published)
        if not self._rows.keys:
            yield "it has no primary key; give key="
        refused = _INEXACT | (_OTHERWISE_IN_LOG if self._follow else set())
        for key in self._rows.keys:
            column = self._columns.get(key)
            if column is None:
                yield f"it has no column {key!r}; the columns are {', '.join(self._columns)}"
            elif wrong := refused & {column["kind"], column["charset"]}:
                rule = f"must not be {wrong.pop()}; give other columns with key="
                yield f"its key column {key} {rule}"
        for name, column in self._columns.items() if self._follow else ():
            if column["compressed"]:
                yield f"its column {name} is compressed; give follow=False"

    def _problems_of_log(self) -> Iterator[str]:
        try:
            status = self._status_of_log()
            self._query("SHOW BINARY LOGS")
        except pymysql.MySQLError as error:
            if error.args[0] not in _DENIED:
                raise
            yield "the user may not see the log: GRANT REPLICATION CLIENT ON *.*"
            return
        base = self._base
        only, ignored = status.get("Binlog_Do_DB"), status.get("Binlog_Ignore_DB")
        if (only and base not in only.split(",")) or base in (ignored or "").split(","):
            yield f"the server does not log changes of {base}; see binlog_do_db, binlog_ignore_db"
        grants = " ".join(str(v) for each in self._query("SHOW GRANTS") for v in each.values())
        # The last text is the start of the grant of a role, which may include the privilege.
        allowed = ("REPLICATION SLAVE", "ALL PRIVILEGES ON *.*", "GRANT `")
        if not any(each in grants for each in allowed):
            yield "the user may not read the log: GRANT REPLICATION SLAVE ON *.*"

    def _look_at_table(self) -> str:
        """Look at the table, and return its kind, for example `BASE TABLE`.

        Store the table's names, columns, unique indexes and key, and the tables that change it by
        cascades.
        """
        tables = self._query(_TABLE, self._rows.name)
        if not tables:
            missing = f"{self}: no table has this name"
            raise (Away if self._state else WrongPipeline)(missing)
        table = min(tables, key=lambda each: str(each["name"]) != self._rows.name)
        self._base, self._rows.name = table["base"], table["name"]  # spelled as in the log
        self._columns = {each["name"]: each for each in self._query(_COLUMNS, self._rows.name)}
        parts = self._query(_KEYS, self._rows.name)
        partial = {each["name"] for each in parts if not each["whole"]}
        self._unique = dict[str, set[str]]()
        for each in parts:
            if each["name"] not in partial:
                self._unique.setdefault(each["name"], set()).add(each["part"])
        if not self._is_key_given:
            self._rows.keys = tuple(each["part"] for each in parts if each["name"] == "PRIMARY")
        self._cascades = self._look_at_cascades()
        return str(table["kind"])

    def _look_at_cascades(self) -> dict[tuple[str, str], tuple[bool, set[str]]]:
        """Return the tables that change this table through foreign keys.

        The log leaves out changes through foreign keys. The value for another table has two parts:
        True if a deletion in the other table changes this table, and the columns of the other table
        that change this table when they are updated.
        """
        found: dict[tuple[str, str], tuple[bool, set[str]]] = {}
        waiting = [(self._base, self._rows.name)]
        while waiting:
            for each in self._query(_CASCADES, *waiting.pop()):
                parent = each["base"], each["name"]
                deletes = each["on_delete"] not in _RESTRICTED
                updated = {each["part"]} if each["on_update"] not in _RESTRICTED else set()
                if not (deletes or updated):
                    continue
                if parent not in found:
                    waiting.append(parent)
                before = found.get(parent, (False, set[str]()))
                found[parent] = before[0] or deletes, before[1] | updated
        return found

    def _is_resumable(self) -> bool:
        """Return True if the log has the stored position, and server and key are unchanged."""
        files = {each["Log_name"] for each in self._query("SHOW BINARY LOGS")}
        (found,) = self._query("SELECT @@server_id AS id")
        # MariaDB has no such id.
        ids = [each["Value"] for each in self._query("SHOW GLOBAL VARIABLES LIKE 'server_uuid'")]
        self._server_uuid, self._replicated = "".join(ids), found["id"]
        state = self._state
        return (
            state.get("file") in files
            and state.get("server") == self._replicated
            and state.get("uuid", self._server_uuid) == self._server_uuid
            and state.get("key") == list(self._rows.keys)
            and state.get("fields", self._visible) == self._rows.fields
        )

    def _status_of_log(self) -> Row:
        try:
            (found,) = self._query("SHOW BINARY LOG STATUS")
        except pymysql.ProgrammingError as error:
            if error.args[0] != _PARSE_ERROR:
                raise
            (found,) = self._query("SHOW MASTER STATUS")  # for MariaDB, and MySQL before 8.2
        return found

    def _end_of_log(self) -> dict[str, Any]:
        status = self._status_of_log()
        end = {"file": status["File"], "position": status["Position"]}
        with suppress(_OtherLog):  # it ends when the server has sent when the file was begun
            next(self._events({**end, "log": [_NEVER_S]}))
        end = self._log_position(end["file"], end["position"])
        self._close_log()
        return end

    def _log_position(self, file: str, position: int) -> dict[str, Any]:
        key, log = list(self._rows.keys), self._log._stream_connection.identity_at(position)
        logged = {"file": file, "position": position, "log": log}
        ids = {"server": self._replicated, "uuid": self._server_uuid}
        return {**ids, **logged, "key": key, "fields": self._rows.fields}

    def _copy(self) -> Iterator[Batch]:
        """Yield all rows after the stored key, in the order of their keys.

        Changes that are made during the copy are in the log, and are read from there afterwards.
        """
        self._rows.begin_copy(self._known)
        for rows in self._pages(self._selection, after=self._state.get("at")):
            last = [rows[-1][each] for each in self._rows.keys]
            self._state = {**self._state, "mode": COPY, "at": [*map(_to_json, last)]}
            yield Batch(self._rows.copy(rows), {self._rows.type: self._state})
        if self._state.get("again"):
            keys = ", ".join(f"`{each}`" for each in self._rows.keys)
            yield from self._rows.missing(self._known, lambda: self._pages(keys))
        self._rows.end_copy()
        kept = {name: each for name, each in self._state.items() if name not in ("at", "again")}
        self._state = {**kept, "mode": COMPLETE}
        yield Batch([], {self._rows.type: self._state})

    def _large_rows(self) -> list[Row]:
        size = " + ".join(f"coalesce(length(`{each}`), 0)" for each in self._rows.fields)
        large = f"WHERE {size} > %s ORDER BY {size} DESC LIMIT %s"
        query = f"SELECT {self._selection} FROM `{self._rows.name}` {large}"
        return self._query(query, LARGE_BYTES, LARGE_ROWS)

    @property
    def _selection(self) -> str:
        hidden = [each for each in self._rows.fields if self._columns[each]["invisible"]]
        names = ", ".join(f"`{each}`" for each in self._rows.selected or hidden)
        return names if self._rows.selected else ", ".join(filter(None, ["*", names]))

    @property
    def _visible(self) -> list[str]:
        """Return the columns, without invisible ones that are neither in the key nor named."""
        named = {*self._rows.keys, *self._rows.columns}
        return [n for n, each in self._columns.items() if n in named or not each["invisible"]]

    def _pages(self, columns: str, after: Sequence[Any] | None = None) -> Iterator[list[Row]]:
        """Yield pages of the rows after the key *after*, in the order of the key's columns."""
        names = [f"`{each}`" for each in self._rows.keys]
        order = f"ORDER BY {', '.join(names)} LIMIT {BATCH}"
        last = [
            (bytes.fromhex(each["hex"]) if isinstance(each, dict) else each) for each in after or ()
        ]
        while True:
            conditions, values = list[str](), list[Any]()
            for at, name in enumerate(names if last else ()):
                same = [f"{each} = %s" for each in names[:at]]
                conditions.append(" AND ".join([*same, f"{name} > %s"]))
                values += last[: at + 1]
            where = f"WHERE {' OR '.join(f'({each})' for each in conditions)}" if conditions else ""
            table = f"SELECT {columns} FROM `{self._rows.name}`"
            rows = self._query(f"{table} {where} {order} {_LOCKED}", *values)
            if not rows:
                return
            last = [rows[-1][each] for each in self._rows.keys]
            yield rows

    def _changes(self) -> Iterator[Batch]:
        """Yield batches of the changes in the log, with the end of the last transaction as state.

        Return when a transaction or statement has ended that makes another copy necessary.
        """
        changed, yielded_s, end = dict[str, _Change](), time.monotonic(), self._state
        is_stale = is_inside = False  # the last batch ended inside a transaction
        for event in self._events(self._state):
            kind = _keyword(event.query) if isinstance(event, QueryEvent) else ""
            if isinstance(event, RowsEvent) and self._is_ours(event):
                is_stale |= not self._add_keys(event, changed)
            elif isinstance(event, (RowsEvent, QueryEvent, *_STATEMENTS)):
                is_stale |= self._may_change(event, kind)
            is_end = isinstance(event, (XidEvent, HeartbeatLogEvent))
            if is_end or (kind and kind not in _WRITES and kind not in ("BEGIN", "SAVEPOINT")):
                end = self._log_position(self._log.log_file, self._log.log_pos)
                if is_stale:
                    self._state = end
                    return
            is_due = isinstance(event, HeartbeatLogEvent) or time.monotonic() - yielded_s > LOOK_S
            if not is_due and len(changed) < BATCH:
                continue
            # If a new file has begun, store its name, because the server may remove the old file.
            # Also store the identity of the log that a position of an earlier release lacks.
            is_moved = end["file"] != self._state["file"] or "log" not in self._state
            if changed or is_moved or (is_inside and is_end):
                is_inside = not is_end
                operations, self._state = self._now(changed), {"mode": COMPLETE, **end}
                yield from batches(operations, {self._rows.type: self._state})
            else:
                # Use the connection, because the server closes a connection that is idle for hours.
                self._query("DO 0")
                yield Batch()
            changed, yielded_s = {}, time.monotonic()

    def _events(self, start: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the events after *start* without end, and a heartbeat event if nothing is new."""
        expected = start.get("log", ())
        tables = [(self._base, self._rows.name), *self._cascades]
        self._log = BinLogStreamReader(
            {**self._server, "read_timeout": ANSWER_S},
            self._server_id,
            blocking=True,
            resume_stream=True,
            log_file=start["file"],
            log_pos=expected[1] if expected[1:] else start["position"],
            only_events=_EVENTS,
            only_schemas=list({base for base, _ in tables}),
            only_tables=list({table for _, table in tables}),
            slave_heartbeat=LOOK_S,
            enable_logging=False,
            pymysql_wrapper=partial(LogConnection, expected=expected),
        )
        yield from self._log

    def _is_ours(self, event: Any) -> bool:
        return (event.schema, event.table) == (self._base, self._rows.name)

    def _may_change(self, event: Any, kind: str) -> bool:
        """Return True if *event* may change rows of the table that are not in the event."""
        if isinstance(event, RowsEvent):
            deletes, updated = self._cascades.get((event.schema, event.table), (False, ()))
            if isinstance(event, DeleteRowsEvent):
                return deletes
            return any(
                row["before_values"].get(name) != row["after_values"].get(name)
                for row in (event.rows if isinstance(event, UpdateRowsEvent) else ())
                for name in updated
            )
        if not isinstance(event, QueryEvent) or kind in _WRITES:
            return True
        names = [self._rows.name, *([self._base] if kind == "DROP" else ())]
        word = "|".join(map(re.escape, names))
        is_named = re.search(rf"(?<![\w$])({word})(?![\w$])", event.query, re.I)
        return kind not in _HARMLESS and is_named is not None

    def _add_keys(self, event: Any, changed: dict[str, _Change]) -> bool:
        """Add to *changed* the keys before and after each change in *event*, by the object's id.

        The first event of a row decides if its object is inserted or updated. Return False if a row
        in the event lacks a column of the key, because the table was altered after the event.
        """
        made = "insert" if isinstance(event, WriteRowsEvent) else "update"
        fields = {"values": made, "before_values": "update", "after_values": "insert"}
        for row in event.rows:
            for field, name in fields.items():
                if (values := row.get(field)) is not None:
                    key = {each: self._from_log(each, values.get(each)) for each in self._rows.keys}
                    if None in key.values():
                        return False
                    changed.setdefault(self._rows.id(key), (name, tuple(key.values())))
        return True

    def _from_log(self, column: str, value: Any) -> Any:
        """Return *value* from the log as a query returns it, or None if it cannot be known.

        The log cuts zero bytes at the end of values with a fixed length, and its reader returns
        texts as `_RAW` and negative times with a wrong fraction.
        """
        kind, size, charset = (self._columns[column][name] for name in ("kind", "size", "charset"))
        if value in _ZEROS.get(kind, ()):
            return _ZEROS[kind][value]
        if isinstance(value, timedelta):
            return _from_log_time(value)
        if kind == "enum" or not isinstance(value, str):
            return None if value == "" else value  # "" also is each value that is not UTF-8
        raw = value.encode(_RAW)
        if kind in ("binary", "uuid"):
            raw = raw.ljust(size or _UUID_BYTES, b"\0")
        with suppress(ValueError):  # the column was altered after the event
            if charset is None:
                return str(UUID(bytes=raw)) if kind == "uuid" else raw
            if charset.startswith("utf8") or raw.isascii():
                return raw.decode()
            # Python's codecs have other characters, or none, for some bytes of most other sets.
            query = f"SELECT CONVERT(CONVERT(%s USING {charset}) USING utf8mb4) AS found"
            return self._query(query, raw)[0]["found"]
        return None

    def _now(self, changed: Mapping[str, _Change]) -> list[dict[str, Any]]:
        """Query the *changed* rows, and return an operation for each of them.

        The operation inserts or updates the object, or deletes it if the row is missing.
        """
        if not changed:
            return []
        same = " AND ".join(f"`{each}` = %s" for each in self._rows.keys)
        where = " OR ".join([f"({same})"] * len(changed))
        values = [each for _, key in changed.values() for each in key]
        query = f"SELECT {self._selection} FROM `{self._rows.name}` WHERE {where} {_LOCKED}"
        rows = {self._rows.id(row): row for row in self._query(query, *values)}
        return [
            self._rows.put(rows[name], rows[name], event)
            if name in rows
            else self._rows.deletion(name)
            for name, (event, _) in changed.items()
        ]

    def _query(self, query: str, *values: Any) -> list[Row]:
        assert self._connection is not None
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, values)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            if error.args[0] == _NO_TABLE:
                raise Away(f"{self}: {error.args[1]}") from None
            if error.args[0] == _NO_COLUMN:
                raise _Altered(f"{self}: {error.args[1]}") from None
            raise


def _from_log_time(value: timedelta) -> timedelta:
    """Return the time that was logged, of which the reader of the log made *value*.

    The server logs a negative time with a fraction as the second below it plus a positive fraction.
    The reader subtracts the fraction from the second instead: -1.25 s becomes -1.75 s.
    """
    if value >= timedelta(0) or not value.microseconds:
        return value
    return timedelta(seconds=2 * math.ceil(value.total_seconds()) - 1) - value


def _keyword(query: str) -> str:
    """Return the first word of a statement, without comments, in upper case."""
    found = _FIRST.match(_COMMENT.sub(" ", query))
    return found[1].upper() if found else ""


def _to_json(value: Any) -> Any:
    """Return a part of a key as JSON, from which `_from_json` makes a parameter of a query."""
    return {"hex": value.hex()} if isinstance(value, bytes) else to_json_value(value)
