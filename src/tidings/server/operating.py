"""Commands of operators on the data folder of a server.

A running server holds the lock of the database file, so it performs the operations itself, on
request through a Unix socket in the data folder. The permissions of the folder control access to
the socket. A request names a declared operation (`http.wire`), which has a route or is local, and
has the names in its path and its fields; no rights are checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.core.errors import Rejected, Unavailable
from tidings.core.model.feeds import DEFAULT_FEED, HOST, check_name
from tidings.http.answers import json_answer, refusal
from tidings.http.request import Request, UnknownPath
from tidings.http.wire import LocalCall
from tidings.server.processes import SOCKET_PATH_BYTES_MAX, Problem
from tidings.server.sqlite.database import Database

if TYPE_CHECKING:
    from tidings.server.host import Host

log = logging.getLogger(__name__)
FILE, SOCKET = "feed.db", "operator.sock"
# Operations on the memory of a running server, or that depend on its options, and an operation that
# appends to the log, which a server may have to repair first.
NEEDS_SERVER = {
    "ErasureRouter.erase_object",
    "ErasureRouter.get_erasure",
    "FeedClients",
    "ReplicaRouter",
    "WebhookRouter.list_webhook_attempts",
}
BACKUP = "backup"
BACKUP_S = 3600.0  # timeout of a backup, enough for a file of hundreds of gigabytes
TIMEOUT_S = 10.0  # timeout of any other request, which may include a commit
LINE_BYTES_MAX = 8 * 1024 * 1024  # the largest request; all users of a feed are one document


def perform(folder: Path, operation: str, **request: Any) -> tuple[int, str]:
    """Perform *operation*, `CLASS.METHOD` of `Host.managed`, on the data in *folder*.

    *request* has the `names` in its path, the fields `given`, `headers` and `operator`. The result
    is the status and the body of the response over HTTP. A running server calls its own services,
    so that they discard what they have cached. Otherwise, a host that starts no thread calls them.

    Raises:
        Problem: *folder* has no data file, the file cannot be opened, or the server must run.
        Unavailable: the server did not answer; the operation may have been done.
    """
    request |= {"call": operation}
    if not _is_served(folder):
        return asyncio.run(_perform_alone(folder, request))
    status, body = _ask(folder / SOCKET, request)
    return status, body


async def _perform_alone(folder: Path, request: Mapping[str, Any]) -> tuple[int, str]:
    from tidings.server.host import Host  # other commands do not need these
    from tidings.server.settings import Settings

    owner, feed = request["call"].partition(".")[0], request["names"].get("feed", HOST)
    if {owner, request["call"]} & NEEDS_SERVER:
        raise Problem(f"no server is running on {folder}, which this command needs")
    # The feeds in the options of the server are not known here, so that of the request is one.
    more = {feed} - {HOST} if owner != "FeedRouter" else set()
    settings = replace(Settings.read({}), feeds=frozenset({DEFAULT_FEED, *more}))
    host = await Host.open(folder / FILE, settings)
    try:
        return await asyncio.to_thread(_perform, host, request)
    finally:
        await host.stop()


def _ask(path: Path, request: Mapping[str, Any]) -> Any:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(BACKUP_S if request["call"] == BACKUP else TIMEOUT_S)
            with _short_path(path) as short:
                connection.connect(short)
            connection.sendall(json.dumps(request).encode() + b"\n")
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
def open_stopped(folder: Path) -> Iterator[Database]:
    """Yield the database of the stopped server with the data folder *folder*.

    Raises:
        Problem: the server is running, *folder* has no data file, or the file cannot be opened.
    """
    if _is_served(folder):
        rule = "stop it, or use a copy: `tidings backup COPY/feed.db`, then `--data COPY`"
        raise Problem(f"a server is running on {folder}; {rule}")
    with contextlib.closing(Database(folder / FILE)) as database:
        yield database


def back_up(folder: Path, target: Path) -> None:
    """Write the current data in *folder* to the new file *target*, whether a server runs or not.

    Raises:
        Problem: *folder* has no data file, or the file cannot be opened.
        Unavailable: *target* already exists or cannot be written.
    """
    if _is_served(folder):
        _ask(folder / SOCKET, {"call": BACKUP, "target": str(target.resolve())})
        return
    with contextlib.closing(Database(folder / FILE)) as database:
        database.back_up(target)


@contextlib.asynccontextmanager
async def answering(folder: Path, host: Host) -> AsyncIterator[None]:
    """Answer the requests to *host* on the socket in *folder* while the context is open."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                line = await reader.readline()
            reply = await asyncio.to_thread(_answer, host, line)
            writer.write(reply.encode() + b"\n")
            await writer.drain()

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


def _answer(host: Host, line: bytes) -> str:
    request = json.loads(line)
    try:
        if request["call"] != BACKUP:
            return json.dumps({"value": _perform(host, request)})
        host.database.back_up(Path(request["target"]))
        return json.dumps({"value": None})
    except Unavailable as error:  # of a backup, with a reason for the operator
        return json.dumps({"error": str(error)})


def _perform(host: Host, request: Mapping[str, Any]) -> tuple[int, str]:
    """Return the status and the body of a response over HTTP."""
    owner, _, name = request["call"].partition(".")
    try:
        if owner not in host.managed:
            raise UnknownPath("no such operation", field="operation", value=owner)
        sent = Request("", "", "", request["headers"], request["names"])
        if owner not in ("KeyRouter", "LocalAdmin"):  # which are also about the host
            check_name(sent.feed)
        call = LocalCall(sent, host.directory, request["operator"])
        value = host.managed[owner]().perform(name, call, request["given"])
        answer = json_answer(call.status, value)
    except (Rejected, Unavailable) as error:
        answer = refusal(error)
    return answer.status, answer.body


def _is_served(folder: Path) -> bool:
    """Return True if a server is running on the data in *folder*."""
    if not (folder / FILE).is_file():
        raise Problem(f"{folder} contains no feed: {FILE} is missing")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        with _short_path(folder / SOCKET) as short:
            connection.connect(short)
        return True
    return False
