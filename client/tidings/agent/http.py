"""
HTTP: operations are posted as to the feed itself, and answered once they are safe on disk.

Requests that come at the same time are made safe together, by one write to the disk.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidings.agent import clock, intake
from tidings.agent.options import Bound
from tidings.agent.store import Store
from tidings.core.auth.origins import check_change, check_host, check_page
from tidings.core.errors import Rejected, WrongContentType
from tidings.core.limits import REQUEST_BYTES_MAX
from tidings.core.model.json_body import lines_from
from tidings.core.version import VERSION

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

RETRY_AFTER_S = 1  # a full queue has room again with the next batch that the feed takes
_METHODS = {"/": "POST", "/ops": "POST", "/status": "GET"}
_ALWAYS = {
    "server": f"tidings/{VERSION}",
    "cache-control": "no-cache, no-store, must-revalidate",
}


class UnknownPath(Rejected):
    status = 404
    code = "unknown_path"


class WrongMethod(Rejected):
    status = 405
    code = "wrong_method"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Committing:
    """*grown* is called when there are more lines to send. Use it from one event loop."""

    def __init__(self, store: Store, bound: Bound, grown: Callable[[], None]) -> None:
        self._store = store
        self._bound = bound
        self._grown = grown
        self._waiting: list[tuple[list[str], asyncio.Future[bool]]] = []
        self._working: asyncio.Task[None] | None = None

    async def add(self, lines: list[str]) -> bool:
        """
        Return once *lines* are safe on disk; False: they do not fit.

        Raises:
            sqlite3.OperationalError: the disk does not take them.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((lines, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            kept: list[bool] | sqlite3.OperationalError
            try:
                kept = await asyncio.to_thread(self._commit, [lines for lines, _ in group])
            except sqlite3.OperationalError as error:
                kept = error
            for at, (_, answer) in enumerate(group):
                if answer.done():
                    continue  # the producer has gone; its operations are queued all the same
                if isinstance(kept, sqlite3.OperationalError):
                    answer.set_exception(kept)
                else:
                    answer.set_result(kept[at])
            self._grown()

    def _commit(self, requests: list[list[str]]) -> list[bool]:
        return intake.add_lines(self._store, requests, now_ms=clock.now_ms(), bound=self._bound)


class Application:
    """
    The ASGI application. *status* makes the body of `/status`, *hosts* are names that we have.

    No page has a browser ask here: the password of the feed is behind us, and producers have none.
    *errors* counts what was refused for its content, as oplog counted it.
    """

    def __init__(
        self, committing: Committing, status: Callable[[], object], hosts: Collection[str] = ()
    ) -> None:
        self.errors = 0
        self._hosts = hosts
        self._committing = committing
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive)
        except Rejected as error:
            answer = _refused(error, scope["path"])
        if answer is not None:
            await _send(send, answer)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | None:
        headers = _headers(scope)
        check_host(headers, self._hosts)
        check_page(headers, ())
        wanted = _METHODS.get(scope["path"])
        if wanted is None:
            raise UnknownPath("no such path", field="path", value=scope["path"])
        if scope["method"] != wanted:
            rule = f"this path takes {wanted} here"
            raise WrongMethod(rule, field="method", value=scope["method"])
        if wanted == "GET":
            return Answer(200, self._status())
        body = await _body(receive)
        if body is None:
            return None
        check_change(headers, (), has_body=bool(body))
        return await self._take(headers.get("content-type", ""), body)

    async def _take(self, content_type: str, body: bytes) -> Answer:
        try:
            lines = lines_from(body, content_type, now_ms=clock.now_ms())
        except WrongContentType:
            raise
        except Rejected:
            self.errors += 1
            raise
        try:
            kept = await self._committing.add(lines)
        except sqlite3.OperationalError as error:
            return _unavailable(f"the queue cannot be written: {error}")
        return Answer(204) if kept else _unavailable("the queue is full; try again later")


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _body(receive: Receive) -> bytes | None:
    """None when the producer has gone; a body that is too long is read no further."""
    body = bytearray()
    while len(body) <= REQUEST_BYTES_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body)


def _refused(error: Rejected, path: str) -> Answer:
    headers = {"allow": _METHODS[path]} if isinstance(error, WrongMethod) else {}
    return Answer(error.status, {"error": error.body()}, headers)


def _unavailable(message: str) -> Answer:
    body = {"error": {"code": "unavailable", "message": message}}
    return Answer(503, body, {"retry-after": str(RETRY_AFTER_S)})


async def _send(send: Send, answer: Answer) -> None:
    headers = {**_ALWAYS, **answer.headers}
    content = b""
    if answer.body is not None:
        content = json.dumps(answer.body, separators=(",", ":")).encode()
        headers["content-type"] = "application/json"
    if answer.status != 204:
        headers["content-length"] = str(len(content))
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
