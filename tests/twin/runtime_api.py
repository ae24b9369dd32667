"""The Lambda Runtime API (2018-06-01) for one worker, and the HTTP/1.1 server of all internal APIs.

The server's clients (awslambdaric, boto3) are started by the twin and use the loopback interface,
so the server supports only keep-alive and `Content-Length`. The server must be fast, because each
invocation passes through it twice.

Each worker has its own Runtime API, like each sandbox on AWS. The worker requests the next
invocation and waits for it, sends the answer or an error, and requests again. The worker has to
send a random password, because other users of the machine can connect to the port, and events
contain clients' data.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import unquote

from tests.twin import clock
from tests.twin.runtime_client import basic

# Far above Lambda's 6 MB, so that a large body is rejected by the emulated limit of Lambda, and not
# by this server.
BODY_BYTES_MAX = 32 * 1024 * 1024
BACKLOG = 1024  # large, because a follower opens 256 connections to `@connections` at once
BODY_S = 60.0  # the time in which a client, which is on this machine, has to send a body
PASSWORD_BYTES = 24  # random; 192 bits cannot be guessed
RESPONSE_BYTES_MAX = 6 * 1024 * 1024  # Lambda's limit for an answer that is not streamed
_PREFIX = "/2018-06-01/runtime/"


@dataclass(frozen=True, slots=True)
class RuntimeRequest:
    """A request; *path* is percent-decoded and without the query; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[RuntimeRequest], Awaitable[Response]]


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        status,
        json.dumps(value, separators=(",", ":")).encode(),
        {"Content-Type": "application/json", **(headers or {})},
    )


def aws_error(status: int, kind: str, message: str) -> Response:
    """Return an error in the format of AWS's REST-JSON services; boto3 raises it as *kind*."""
    return json_response(status, {"message": message}, {"x-amzn-ErrorType": kind})


class LoopbackServer:
    """A server of *handler* on a free port of 127.0.0.1."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._conversations: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, close every connection, and cancel the waiting handlers."""
        if self._server is not None:
            self._server.close()
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.ensure_future(self._converse(reader, writer))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                response = await self._handler(request)
                lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
                lines += [f"{name}: {value}" for name, value in response.headers.items()]
                lines += [f"Content-Length: {len(response.body)}", "", ""]
                writer.write("\r\n".join(lines).encode("latin-1") + response.body)
                await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # do not answer a client that is gone, is too slow, or does not send HTTP
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may already be closed
                writer.close()


async def _read(reader: asyncio.StreamReader) -> RuntimeRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    start, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = start.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    size = int(headers.get("content-length") or 0)
    if size > BODY_BYTES_MAX:
        raise ConnectionAbortedError
    async with asyncio.timeout(BODY_S):
        body = await reader.readexactly(size) if size else b""
    return RuntimeRequest(method, unquote(target.partition("?")[0]), headers, body)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an invocation; if *error* is `Unhandled`, *payload* describes the error."""

    payload: bytes
    error: str | None = None


Invoke = Callable[[str, bytes], Awaitable[Answer]]  # the arguments: a function's name, an event


def failure(kind: str, message: str) -> Answer:
    """Return the answer of an invocation that failed outside the handler."""
    document = {"errorType": kind, "errorMessage": message}
    return Answer(json.dumps(document).encode(), "Unhandled")


@dataclass(slots=True)
class Invocation:
    """One event and its answer."""

    payload: bytes
    deadline_ms: int
    request_id: str = field(default_factory=clock.new_uuid)
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class RuntimeApi:
    """The API from which one worker gets its invocations, one at a time, and sends the answers."""

    def __init__(self, function_arn: str) -> None:
        self._function_arn = function_arn
        self._user_info = f"worker:{clock.new_token(PASSWORD_BYTES).hex()}"
        self._waiting: asyncio.Queue[Invocation] = asyncio.Queue()
        self._current: Invocation | None = None
        # The result is None if the worker has requested its first event, or else the error by which
        # the worker failed to start.
        self.started: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

    def address(self, port: int) -> str:
        """Return the value of AWS_LAMBDA_RUNTIME_API for a worker that is served on *port*."""
        return f"{self._user_info}@127.0.0.1:{port}"

    def hand(self, invocation: Invocation) -> None:
        self._waiting.put_nowait(invocation)

    async def handle(self, request: RuntimeRequest) -> Response:
        shown = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(shown, basic(self._user_info).encode()):
            return json_response(403, {"errorType": "Forbidden", "errorMessage": "Forbidden"})
        action = request.path.removeprefix(_PREFIX)
        if request.method == "GET" and action == "invocation/next":
            return await self._next()
        if request.method == "POST" and action == "init/error":
            self._start(Answer(request.body, "Unhandled"))
            return _acknowledgement()
        if request.method == "POST" and action.startswith("invocation/"):
            return self._take(action, request.body)
        return json_response(404, {"errorType": "NotFound", "errorMessage": request.path})

    async def _next(self) -> Response:
        self._start(None)
        invocation = self._current = await self._waiting.get()
        seconds = clock.now_ms() // 1000
        root = f"1-{seconds:08x}-{clock.new_token(12).hex()}"
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self._function_arn,
            "Lambda-Runtime-Trace-Id": f"Root={root};Parent={clock.new_token(8).hex()};Sampled=0",
        }
        return Response(200, invocation.payload, headers)

    def _take(self, action: str, body: bytes) -> Response:
        _, request_id, kind = [*action.split("/"), "", ""][:3]
        invocation = self._current
        if invocation is None or invocation.request_id != request_id:
            return json_response(400, {"errorType": "InvalidRequestID", "errorMessage": request_id})
        if kind not in ("response", "error"):
            return json_response(404, {"errorType": "NotFound", "errorMessage": action})
        self._current = None
        if not invocation.answer.done():
            invocation.answer.set_result(_answer(kind, body))
        return _acknowledgement()

    def _start(self, error: Answer | None) -> None:
        if not self.started.done():
            self.started.set_result(error)


def _answer(kind: str, body: bytes) -> Answer:
    if kind == "response" and len(body) > RESPONSE_BYTES_MAX:
        message = f"Response payload size exceeded maximum allowed size ({RESPONSE_BYTES_MAX})."
        return failure("Function.ResponseSizeTooLarge", message)
    return Answer(body, None if kind == "response" else "Unhandled")


def _acknowledgement() -> Response:
    return json_response(202, {"status": "OK"})
