"""Commands of operators on the data folder of a server: settings, keys and users; backups.

A running server holds the lock of the database file, so it makes these changes itself, on request
through a Unix socket in the data folder. Requests name feeds, or the host (`model.feeds.HOST`). The
permissions of the folder control access to the socket. Over HTTP, keys can only be listed and
revoked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidings.core.auth.keys import KEYS
from tidings.core.changeagent.documents import DOCUMENTS
from tidings.core.errors import Unavailable
from tidings.core.feeds.records import FeedStore
from tidings.core.records import Kind, Record, RecordStore, Write
from tidings.core.settings.profiles import PROFILES
from tidings.server.processes import SOCKET_PATH_BYTES_MAX, Problem
from tidings.server.sqlite.database import CannotOpen, Database
from tidings.server.sqlite.records import SqliteRecords

log = logging.getLogger(__name__)
FILE, SOCKET = "feed.db", "operator.sock"
KINDS = frozenset({PROFILES, KEYS, DOCUMENTS})
BACKUP = "backup"
BACKUP_S = 3600.0  # timeout of a backup, enough for a file of hundreds of gigabytes
TIMEOUT_S = 10.0  # timeout of any other request, which may include a commit
LINE_BYTES_MAX = 8 * 1024 * 1024  # the largest request; all users of a feed are one document


class RemoteRecords:
    """Implements `RecordStore` by requests to the socket of a running server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(
        self, feed: str, kind: Kind, name: str = "", of: str = "", *, eventual: bool = False
    ) -> Record | None:
        found = _ask(self._path, "get", feed, kind, name)
        return Record(*found) if found else None

    def query(self, feed: str, kind: Kind, of: str = "", **_: object) -> Iterator[Record]:
        """Yield all records of *feed*, whatever part of them is requested."""
        return (Record(*each) for each in _ask(self._path, "query", feed, kind))

    def write(self, feed: str, writes: Sequence[Write], *, mark: bool = True) -> bool:
        return bool(_ask(self._path, "write", feed, writes))


class _NamedRecords(SqliteRecords):
    """Implements `RecordStore` by the names of feeds."""

    def get(self, feed: str, *place: Any, **options: Any) -> Record | None:
        return super().get(_key(self._database, feed), *place, **options)

    def query(self, feed: str, *place: Any, **options: Any) -> Iterator[Record]:
        return super().query(_key(self._database, feed), *place, **options)

    def write(self, feed: str, writes: Sequence[Write], **options: Any) -> bool:
        return super().write(_key(self._database, feed), writes, **options)


def _key(database: Database, name: str) -> str:
    """Return the key of the feed *name*, as in `Directory`; a name without a record is a key."""
    record = FeedStore(SqliteRecords(database)).record(name)
    if record is not None and not record.is_live:
        raise Problem(f"the feed {name} was deleted")
    return record.key if record else name


def _ask(path: Path, call: str, *arguments: object) -> Any:
    line = json.dumps({"call": call, "arguments": arguments}, default=dict)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(BACKUP_S if call == BACKUP else TIMEOUT_S)
            with _short_path(path) as short:
                connection.connect(short)
            connection.sendall(line.encode() + b"\n")
            with connection.makefile("rb") as file:
                answer = json.loads(file.readline())
    except (OSError, ValueError) as error:
        raise Unavailable(f"the server at {path} did not answer") from error
    if "error" in answer:
        raise Unavailable(answer["error"])
    return answer["value"]


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Yield *path*, or another path of its socket if the kernel's calls cannot contain it."""
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def open_records(folder: Path) -> Iterator[RecordStore]:
    """Yield the records of the server with the data folder *folder*, running or stopped.

    Raises:
        Problem: *folder* has no data file, or the file cannot be opened.
    """
    if _is_served(folder):
        yield RemoteRecords(folder / SOCKET)
        return
    with contextlib.closing(_database(folder)) as database:
        yield _NamedRecords(database)


@contextlib.contextmanager
def open_stopped(folder: Path) -> Iterator[Database]:
    """Yield the database of the stopped server with the data folder *folder*.

    Raises:
        Problem: the server is running, *folder* has no data file, or the file cannot be opened.
    """
    if _is_served(folder):
        rule = "stop it, or use a copy: `tidings backup COPY/feed.db`, then `--data COPY`"
        raise Problem(f"a server is running on {folder}; {rule}")
    with contextlib.closing(_database(folder)) as database:
        yield database


def back_up(folder: Path, target: Path) -> None:
    """Write the current data in *folder* to the new file *target*, whether a server runs or not.

    Raises:
        Problem: *folder* has no data file, or the file cannot be opened.
        Unavailable: *target* already exists or cannot be written.
    """
    if _is_served(folder):
        _ask(folder / SOCKET, BACKUP, str(target.resolve()))
        return
    with contextlib.closing(_database(folder)) as database:
        database.back_up(target)


def _database(folder: Path) -> Database:
    try:
        return Database(folder / FILE)
    except CannotOpen as error:
        raise Problem(str(error)) from None


@contextlib.asynccontextmanager
async def taking_changes(
    folder: Path, database: Database, on_change: Callable[[str, str, str], None]
) -> AsyncIterator[None]:
    """Answer requests on the socket in *folder* while the context is open.

    If a request may have replaced a record, call *on_change* with its kind, feed and name before
    answering.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                line = await reader.readline()
            reply = await asyncio.to_thread(_answer, database, line, on_change)
            writer.write(reply.encode() + b"\n")
            await writer.drain()
        writer.close()

    path = folder / SOCKET
    # If the socket exists, a killed process left it: this process holds the lock, so no other
    # server runs.
    path.unlink(missing_ok=True)
    server: asyncio.Server | None = None
    with _short_path(path) as short:
        try:
            server = await asyncio.start_unix_server(answer, short, limit=LINE_BYTES_MAX)
        except OSError as error:  # such as on SMB or FAT
            text = "%s cannot be created (%s): operators' commands need a stopped server"
            log.warning(text, path, error.strerror)
    try:
        yield
    finally:
        if server is not None:
            server.close()
        path.unlink(missing_ok=True)


def _answer(database: Database, line: bytes, on_change: Callable[[str, str, str], None]) -> str:
    request = json.loads(line)
    if request["call"] == BACKUP:
        return _backed_up(database, *request["arguments"])
    call, (feed, *arguments) = request["call"], request["arguments"]
    records, writes = SqliteRecords(database), list[Write]()
    try:
        key = _key(database, feed)
        value: object
        if call == "write":
            writes = [Write(_kind(kind), *rest) for kind, *rest in arguments[0]]
            value = records.write(key, writes)
        elif call == "query":
            value = [*records.query(key, _kind(arguments[0]))]
        else:
            value = records.get(key, _kind(arguments[0]), *arguments[1:])
    except (Unavailable, Problem) as error:
        return json.dumps({"error": str(error)})
    finally:  # also after an error, because the write may have been done
        for each in writes:
            on_change(each.kind.name, key, each.name)
    return json.dumps({"value": value})


def _kind(given: Sequence[Any]) -> Kind:
    """Return the kind that a request names, if requests may use it."""
    kind = Kind(*given)
    if kind not in KINDS:
        raise Problem(f"no such records: {kind.name}")
    return kind


def _backed_up(database: Database, target: str) -> str:
    try:
        database.back_up(Path(target))
    except Unavailable as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"value": None})


def _is_served(folder: Path) -> bool:
    """Return True if a server is running on the data in *folder*."""
    if not (folder / FILE).is_file():
        raise Problem(f"{folder} contains no feed: {FILE} is missing")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        with _short_path(folder / SOCKET) as short:
            connection.connect(short)
        return True
    return False
