"""
The SSE stream as a plain ASGI app: `GET /`, `/ops`, `/feeds/{feed}/ops`.

Behind Lambda response streaming one process serves one client; the twin serves many.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from tidings.core.access import basic_password
from tidings.core.cursors import NOW
from tidings.core.errors import Rejected, TidingsError
from tidings.core.feeds import DEFAULT_FEED
from tidings.core.ports import Clock
from tidings.core.streaming import HEARTBEAT, Stream, Streamer

from .http import check_routed, cors_headers, error_headers, preflight_headers, status_and_body

Result = TypeVar("Result")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

POLL_S = 0.2  # a consumer hears within a second; five reads a second cost 5 RRU while it listens
HEARTBEAT_MS = 20_000  # oplog promised 25.5 s; proxies cut silent streams after 30
STREAM_MS = 14 * 60_000  # Lambda ends after 15 minutes; we end before it, between two events
_LAST_MS = 5_000  # what is left of a function's time when we end: the last chunk may be large
_LAMBDA = "x-amzn-lambda-context"  # where the web adapter passes the function's deadline
EVENT_STREAM = "text/event-stream"


class NotAcceptable(Rejected):
    status = 406
    code = "not_acceptable"


class EventStreams:
    """
    The app. *streamer* is built when the first client comes; *origins* are the pages a browser
    may read from.
    """

    def __init__(
        self, streamer: Callable[[], Streamer], clock: Clock, origins: tuple[str, ...]
    ) -> None:
        self._streamer, self._clock, self._origins = streamer, clock, origins

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if scope["method"] == "OPTIONS":
            await self._permit(send, headers)
            return
        try:
            stream = await _in_thread(self._open, scope, headers)
        except TidingsError as error:
            await self._refuse(send, error, headers)
            return
        await self._start(send, stream, _cursor(scope, headers), headers)
        await self._serve(stream, receive, send, _end_ms(headers, self._clock()))

    def _open(self, scope: Message, headers: dict[str, str]) -> Stream:
        path = check_routed(scope["method"], scope["path"], "GET")
        if not accepts_events(headers.get("accept", "")):
            rule = f"must allow {EVENT_STREAM}"
            raise NotAcceptable(rule, field="Accept", value=headers.get("accept"))
        query = _query(scope)
        return self._streamer().open(
            path["feed"] or DEFAULT_FEED,
            _cursor(scope, headers),
            _first(query, "types"),
            _first(query, "parents"),
            basic_password(headers.get("authorization")),
        )

    async def _serve(self, stream: Stream, receive: Receive, send: Send, end_ms: int) -> None:
        import asyncio  # the server has loaded it; nobody else who imports this needs it

        gone = asyncio.ensure_future(_disconnected(receive))
        spoke = self._clock()
        while not gone.done() and self._clock() < end_ms:
            try:
                chunk = await _in_thread(stream.next)
            except TidingsError:
                break  # the client resumes from its cursor, perhaps in better weather
            text = chunk.text
            if not text and self._clock() - spoke >= HEARTBEAT_MS:
                text = HEARTBEAT
            if text:
                await _send_body(send, text, more=True)
                spoke = self._clock()
            if chunk.at_frontier:
                await asyncio.wait({gone}, timeout=POLL_S)
        if not gone.done():
            gone.cancel()
            await _send_body(send, "", more=False)

    async def _start(self, send: Send, stream: Stream, given: str, headers: dict[str, str]) -> None:
        answer = {
            "content-type": f"{EVENT_STREAM}; charset=utf-8",
            "cache-control": "no-cache, no-store, must-revalidate",
            # Where it starts: a client cut before its first event resumes from here.
            "last-event-id": stream.progress.cursor if given in ("", NOW) else given,
        }
        await self._send_head(send, 200, answer, headers)
        await _send_body(send, "", more=True)

    async def _permit(self, send: Send, headers: dict[str, str]) -> None:
        """A browser asks first what a page may send; nothing else asks with OPTIONS."""
        answer = preflight_headers(headers.get("origin", ""), self._origins, ["GET"])
        await self._send_head(send, 204, answer, headers)
        await _send_body(send, "", more=False)

    async def _refuse(self, send: Send, error: TidingsError, headers: dict[str, str]) -> None:
        status, body = status_and_body(error)
        answer = {"content-type": "application/json", **error_headers(status)}
        await self._send_head(send, status, answer, headers)
        await _send_body(send, json.dumps(body), more=False)

    async def _send_head(
        self, send: Send, status: int, answer: dict[str, str], headers: dict[str, str]
    ) -> None:
        answer |= cors_headers(headers.get("origin", ""), self._origins)
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in answer.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})


def accepts_events(accept: str) -> bool:
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return bool(kinds & {EVENT_STREAM, "text/*", "*/*"})


def _cursor(scope: Message, headers: dict[str, str]) -> str:
    return headers.get("last-event-id") or _first(_query(scope), "lastEventId") or ""


def _query(scope: Message) -> dict[str, list[str]]:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _end_ms(headers: dict[str, str], now_ms: int) -> int:
    """When to end: before the function's own deadline, where it is told."""
    context = json.loads(headers.get(_LAMBDA, "{}"))
    deadline_ms = int(context.get("deadline", now_ms + STREAM_MS + _LAST_MS))
    return min(now_ms + STREAM_MS, deadline_ms - _LAST_MS)


def _first(query: dict[str, list[str]], name: str) -> str | None:
    return query[name][0] if name in query else None


async def _in_thread(task: Callable[..., Result], *arguments: Any) -> Result:
    """The stores wait for the network; the server must not."""
    import asyncio

    return await asyncio.to_thread(task, *arguments)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_body(send: Send, text: str, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})
