"""The HTTP server. It accepts operations as a feed does, and answers once they are safe on disk.

Concurrent requests are committed together, with one write to the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection

from tidings.agent import intake
from tidings.agent.queue import Bound, Store, now_ms
from tidings.core.auth.origins import check_change, check_host, check_page
from tidings.core.errors import Rejected, WrongContentType
from tidings.core.model.json_body import lines_from
from tidings.http.answers import ALWAYS, json_answer, refusal, unavailable_body
from tidings.http.asgi import (
    BodyBudget,
    Gone,
    Message,
    Receive,
    Send,
    arrival_of,
    body_of,
    check_announced,
    headers_of,
    send_response,
)
from tidings.http.request import Answer, UnknownPath, WrongMethod, decompress, is_compressed

_TOO_SLOW = json_answer(408, {"message": "Request Timeout"})
_METHODS = {"/": "POST", "/ops": "POST", "/status": "GET"}


class Committing:
    """A writer that commits the lines of concurrent requests together, for one event loop.

    *grown* is called when the queue has grown.
    """

    def __init__(self, store: Store, bound: Bound, grown: Callable[[], None]) -> None:
        self._store = store
        self._bound = bound
        self._grown = grown
        self._waiting: list[tuple[list[str], asyncio.Future[bool]]] = []
        self._working: asyncio.Task[None] | None = None

    async def add(self, lines: list[str]) -> bool:
        """Return True once *lines* are safe on disk, False if they do not fit into the queue.

        Raises:
            sqlite3.Error: the disk refuses the write.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((lines, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            kept: list[bool] | sqlite3.Error
            try:
                kept = await asyncio.to_thread(
                    intake.add_lines,
                    self._store,
                    [lines for lines, _ in group],
                    now_ms=now_ms(),
                    bound=self._bound,
                )
            except sqlite3.Error as error:
                kept = error
            for at, (_, answer) in enumerate(group):
                if answer.done():
                    continue  # the producer has disconnected, but its operations are queued
                if isinstance(kept, sqlite3.Error):
                    answer.set_exception(kept)
                else:
                    answer.set_result(kept[at])
            self._grown()


class Application:
    """The ASGI application. *status* returns the body of `/status`; *hosts* are the accepted hosts.

    Requests of web pages are rejected, because the agent has the password of the feed and does not
    ask producers for a password. *errors* counts requests with invalid content, as oplog does.
    """

    def __init__(
        self, committing: Committing, status: Callable[[], object], hosts: Collection[str] = ()
    ) -> None:
        self.errors = 0
        self._hosts = hosts
        self._committing = committing
        self._status = status
        self._bodies = BodyBudget()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive)
        except Rejected as error:
            answer = refusal(error)
        if answer is not None:
            headers = {**ALWAYS, **answer.headers}
            await send_response(send, answer.status, headers, answer.body.encode())

    async def _answer(self, scope: Message, receive: Receive) -> Answer | None:
        headers = headers_of(scope)
        check_host(headers, self._hosts)
        check_page(headers, ())
        wanted = _METHODS.get(scope["path"])
        if wanted is None:
            raise UnknownPath("no such path", field="path", value=scope["path"])
        if scope["method"] != wanted and (scope["method"], wanted) != ("HEAD", "GET"):
            raise WrongMethod(scope["method"], wanted)
        if wanted == "GET":
            return json_answer(200, self._status())
        compressed = is_compressed(headers)
        check_announced(headers)
        try:
            body = await body_of(receive, self._bodies, arrival_of(scope))
        except Gone:
            return None
        except TimeoutError:
            return _TOO_SLOW
        check_change(headers, (), has_body=bool(body))
        if compressed:
            body = decompress(body)
        return await self._take(headers.get("content-type", ""), body)

    async def _take(self, content_type: str, body: bytes) -> Answer:
        try:
            lines = lines_from(body, content_type, now_ms=now_ms())
        except WrongContentType:
            raise
        except Rejected:
            self.errors += 1
            raise
        try:
            kept = await self._committing.add(lines)
        except sqlite3.Error as error:
            return _unavailable(f"cannot be written: {error}")
        return Answer(204) if kept else _unavailable("is full; try again later")


def _unavailable(rule: str) -> Answer:
    return json_answer(503, {"error": unavailable_body(rule, "queue")})
