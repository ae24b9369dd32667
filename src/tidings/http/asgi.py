"""Types and helpers shared by the ASGI apps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs

from tidings.http.answers import headers_for, preflight_headers
from tidings.http.request import Answer

Result = TypeVar("Result")
Message = MutableMapping[str, Any]
Query = dict[str, list[str]]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def headers_of(scope: Message) -> dict[str, str]:
    """Return the headers by name; ASGI servers pass the names in lower case."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def query_of(scope: Message) -> Query:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def in_thread(task: Callable[..., Result], *arguments: Any) -> Result:
    """Run *task* in a thread: stores block on the network, and the event loop must not block."""
    import asyncio

    return await asyncio.to_thread(task, *arguments)


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def preflight(headers: Mapping[str, str], origins: Sequence[str], *methods: str) -> Answer:
    """Return the response to a CORS preflight request."""
    return Answer(204, preflight_headers(headers.get("origin", ""), origins, methods))


async def send_answer(
    send: Send, answer: Answer, request_headers: Mapping[str, str], origins: Sequence[str]
) -> None:
    """Send the whole *answer* to a request with *request_headers*."""
    headers = {**headers_for(request_headers.get("origin", ""), origins), **answer.headers}
    if has_length(answer.status):
        headers["content-length"] = str(len(answer.body.encode()))
    await send_head(send, answer.status, headers)
    await send_body(send, answer.body, more=False)


async def answer_head(app: App, scope: Message, send: Send) -> None:
    """
    Answer `HEAD` with the headers of the response of *app* to `GET`, without waiting for news.
    """

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send_start(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)

    await app({**scope, "method": "GET"}, receive, send_start)
    await send({"type": "http.response.body", "body": b""})


def has_length(status: int) -> bool:
    """Return True if a response with this *status* has a Content-Length."""
    return status not in (204, 304)


async def send_head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


def unbuffered(send: Send) -> Send:
    """Return *send* with headers that stop proxies from buffering or transforming the answer."""

    async def send_unbuffered(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, _untransformed(name, value)) for name, value in message["headers"]]
            message = {**message, "headers": [*headers, (b"x-accel-buffering", b"no")]}
        await send(message)

    return send_unbuffered


def _untransformed(name: bytes, value: bytes) -> bytes:
    return value + b", no-transform" if name == b"cache-control" else value


async def send_body(send: Send, text: str, *, more: bool) -> int:
    """Send *text* as a part of the body; return its size in bytes."""
    body = text.encode()
    await send({"type": "http.response.body", "body": body, "more_body": more})
    return len(body)
