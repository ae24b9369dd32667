"""What the ASGI apps share: types, the parts of a request, the parts of an answer."""

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
    """By name, in lower case as a server hands them over."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def query_of(scope: Message) -> Query:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def in_thread(task: Callable[..., Result], *arguments: Any) -> Result:
    """The stores wait for the network; the server must not."""
    import asyncio

    return await asyncio.to_thread(task, *arguments)


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def preflight(headers: Mapping[str, str], origins: Sequence[str], *methods: str) -> Answer:
    """The answer to OPTIONS, with which a browser asks what a page may send."""
    return Answer(204, preflight_headers(headers.get("origin", ""), origins, methods))


async def send_answer(
    send: Send, answer: Answer, request_headers: Mapping[str, str], origins: Sequence[str]
) -> None:
    """The whole *answer* to a request with *request_headers*."""
    headers = {**headers_for(request_headers.get("origin", ""), origins), **answer.headers}
    if has_length(answer.status):
        headers["content-length"] = str(len(answer.body.encode()))
    await send_head(send, answer.status, headers)
    await send_body(send, answer.body, more=False)


async def answer_head(app: App, scope: Message, send: Send) -> None:
    """Answer `HEAD` with the head of what *app* answers to `GET`; nothing is waited for."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send_start(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)

    await app({**scope, "method": "GET"}, receive, send_start)
    await send({"type": "http.response.body", "body": b""})


def has_length(status: int) -> bool:
    """Return True if an answer of this *status* says how long its body is."""
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
    """How many bytes it was."""
    body = text.encode()
    await send({"type": "http.response.body", "body": body, "more_body": more})
    return len(body)
