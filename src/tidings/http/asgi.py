"""Types and helpers of the ASGI apps, to read requests and to send responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, unquote

from tidings.core import limits
from tidings.core.errors import TooLarge
from tidings.http.answers import preflight_headers, with_headers
from tidings.http.request import Answer, Overloaded

if TYPE_CHECKING:
    from collections.abc import Iterable

Result = TypeVar("Result")
Message = MutableMapping[str, Any]
Query = dict[str, list[str]]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
BODY_BYTES_MAX = 10 * 1024 * 1024  # the limit of API Gateway's HTTP APIs
ARRIVAL = "tidings.arrival"  # key of the `Arrival` in the ASGI scope
# An optional key in the ASGI scope. Its value is a function that writes a result of `frame_chunk`
# to the connection at once. If the connection is full, the function writes nothing and returns
# False.
WRITE_NOW = "tidings.write_now"
WriteNow = Callable[[bytes], bool]
# An optional key in the ASGI scope. Its value is a function that resets the connection after a
# number of seconds, unless the client has received everything by then. Without the reset, a slow
# client would still receive data from buffers.
CUT_AFTER = "tidings.cut_after"
CutAfter = Callable[[float], None]


def headers_of(scope: Message) -> dict[str, str]:
    """Return the headers by name; ASGI servers pass the names in lower case."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def query_of(scope: Message) -> Query:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def in_thread(task: Callable[..., Result], *arguments: Any) -> Result:
    """Run *task* in a thread, because stores block, and the event loop must not be blocked."""
    return await asyncio.to_thread(task, *arguments)


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def preflight(headers: Mapping[str, str], origins: Sequence[str], *methods: str) -> Answer:
    """Return the response to a CORS preflight request."""
    return Answer(204, preflight_headers(headers.get("origin", ""), origins, methods))


async def send_answer(
    send: Send, answer: Answer, request_headers: Mapping[str, str], origins: Sequence[str]
) -> None:
    """Send the whole *answer* to a request with *request_headers*."""
    whole = with_headers(answer, request_headers, origins)
    await send_response(send, whole.status, whole.headers, whole.body.encode())


async def send_response(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Send a response with its whole *body*, and with a Content-Length if it may have one."""
    if has_length(status):
        headers = {**headers, "content-length": str(len(body))}
    await send_head(send, status, headers)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def answer_head(app: App, scope: Message, send: Send) -> None:
    """Answer `HEAD` with the headers of *app*'s response to `GET`, without waiting for entries."""

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
    pairs = encode_headers(tuple(headers.items()))
    await send({"type": "http.response.start", "status": status, "headers": pairs})


@lru_cache(maxsize=64)  # nearly all answers to producers have the same headers
def encode_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode(), value.encode("latin-1")) for name, value in headers)


def disable_buffering(send: Send) -> Send:
    """Return *send* with headers that stop proxies from buffering or transforming the answer."""

    async def send_unbuffered(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, value + b", no-transform" if name == b"cache-control" else value)
                for name, value in message["headers"]
            ]
            message = {**message, "headers": [*headers, (b"x-accel-buffering", b"no")]}
        await send(message)

    return send_unbuffered


async def send_body(send: Send, text: str, *, more: bool) -> int:
    """Send *text* as a part of the body; return its size in bytes."""
    body = text.encode()
    await send({"type": "http.response.body", "body": body, "more_body": more})
    return len(body)


def frame_chunk(text: str) -> bytes:
    """Return *text*, which is not empty, as a chunk of HTTP's chunked encoding, for `WRITE_NOW`."""
    body = text.encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


class Arrival:
    """Facts about a request that the server and the app pass to each other.

    When the whole body has arrived, *body* has the bytes that the app has not received yet. It
    stays None if the server does not report the end. *is_gone* is True if the client has closed the
    connection. The app sets *route* to the path of the route, with parameters as in `http.routes`;
    "" if no route matches. The server counts requests by it. The app of a server sets *plan* to a
    `posts.Plan` if later posts with the same head may skip the app.
    """

    __slots__ = ("body", "is_gone", "plan", "route")

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.is_gone = False
        self.plan: Any = None
        self.route = ""


_UNKNOWN = Arrival()


def arrival_of(scope: Message) -> Arrival:
    """Return the object in which the server reports that the body has arrived."""
    arrival: Arrival = scope.get(ARRIVAL, _UNKNOWN)
    return arrival


class Gone(Exception):
    """The client closed the connection before its request was processed."""


def raw_path(scope: Message) -> str:
    """Return the path as the client sent it, not decoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0]


def below(scope: Message, prefix: str) -> Message:
    """Return *scope* with *prefix* removed from its path, as API Gateway does for a domain."""
    if not prefix:
        return scope
    path = raw_path(scope)
    if not (path == prefix or path.startswith(f"{prefix}/")):
        return scope
    raw = path.removeprefix(prefix) or "/"
    return {**scope, "raw_path": raw.encode("latin-1"), "path": unquote(raw)}


def join_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers by name; join repeated headers with commas, as API Gateway does."""
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: ",".join(each) for name, each in values.items()}


@dataclass(slots=True)
class BodyBudget:
    """A limit on the bytes of all bodies that a process receives at the same time."""

    left: int = limits.BODIES_BYTES_MAX

    def take(self, size: int) -> None:
        """Reserve *size* bytes for a body.

        Raises:
            Overloaded: the bodies of all requests together exceed the limit.
        """
        if size > self.left:
            raise Overloaded("the server receives too many bodies at once; try again", field="body")
        self.left -= size


async def body_of(receive: Receive, budget: BodyBudget, arrival: Arrival | None = None) -> bytes:
    """Return the body. If the whole body is in *arrival*, no timeout applies.

    Raises:
        TimeoutError: the body took longer than BODY_S, or nothing arrived for BODY_IDLE_S.
        TooLarge: the body is longer than BODY_BYTES_MAX.
        Overloaded, Gone: see these classes.
    """
    if arrival is not None and arrival.body is not None:
        return arrival.body
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(limits.BODY_S):
            while more:
                async with asyncio.timeout(limits.BODY_IDLE_S):
                    message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part: bytes = message.get("body", b"")
                check_length(size + len(part))
                budget.take(len(part))
                size += len(part)
                parts.append(part)
                more = message.get("more_body", False)
        return b"".join(parts)
    finally:
        budget.left += size


def check_length(size: int) -> None:
    """Check the size in bytes of a body.

    Raises:
        TooLarge: the size exceeds BODY_BYTES_MAX.
    """
    if size > BODY_BYTES_MAX:
        rule = f"a request holds at most {BODY_BYTES_MAX} bytes"
        raise TooLarge(rule, field="body", value=size)


def check_announced(headers: Mapping[str, str]) -> None:
    """Check the size of the body that *headers* announce.

    Raises:
        TooLarge: the size exceeds BODY_BYTES_MAX.
    """
    length = headers.get("content-length", "")
    check_length(int(length) if length.isascii() and length.isdigit() else 0)
