"""The Runtime API of a worker, and the APIs that functions call: Lambda's and `@connections`.

The clients (awslambdaric, boto3) use the loopback interface, so the server supports only keep-alive
and `Content-Length`. It must be fast, because each invocation passes through it twice.

Each worker has its own Runtime API (2018-06-01), like each sandbox on AWS. The worker requests the
next invocation and waits for it, sends the answer or an error, and requests again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import unquote

from tests.twin.socket_gateway import MESSAGE_BYTES_MAX, NORMAL, SocketGateway
from tests.twin.store import PREFIX, STAGE
from tidings.aws.effects import now_ms

BACKLOG = 1024  # large, because a follower opens 256 connections to `@connections` at once
RESPONSE_BYTES_MAX = 6 * 1024 * 1024  # Lambda's limit for an answer that is not streamed
SYNC_BYTES_MAX = 6 * 1024 * 1024  # Lambda's limit for the payload of a synchronous invocation
ASYNC_BYTES_MAX = 1024 * 1024  # Lambda's limit for the payload of an asynchronous invocation
RETRY_AFTER_S = (60.0, 120.0)  # Lambda's pauses before the second and third attempt
_PREFIX = "/2018-06-01/runtime/"
_CONNECTION = re.compile(rf"(?:/{STAGE})?/@connections/([^/]+)")
_INVOCATIONS = re.compile(
    r"/2015-03-31/functions/(?:.*:function:)?([A-Za-z0-9_-]+)(?::.*)?/invocations"
)


@dataclass(frozen=True, slots=True)
class ApiRequest:
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


Api = Callable[[ApiRequest], Awaitable[Response | None]]


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(status, body, {"Content-Type": "application/json", **(headers or {})})


def aws_error(status: int, kind: str, message: str) -> Response:
    """Return an error in the format of AWS's REST-JSON services; boto3 raises it as *kind*."""
    return json_response(status, {"message": message}, {"x-amzn-ErrorType": kind})


class LoopbackServer:
    """A server of APIs on a free port of 127.0.0.1; `serve` names the APIs, also after a start."""

    def __init__(self, *apis: Api) -> None:
        self._apis = apis
        self._conversations: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    def serve(self, *apis: Api) -> None:
        self._apis = apis

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
            while True:
                response = await self._answer(await _read(reader))
                lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
                lines += [f"{name}: {value}" for name, value in response.headers.items()]
                lines += [f"Content-Length: {len(response.body)}", "", ""]
                writer.write("\r\n".join(lines).encode("latin-1") + response.body)
                await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # the client is gone
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may already be closed
                writer.close()

    async def _answer(self, request: ApiRequest) -> Response:
        for api in self._apis:
            if (response := await api(request)) is not None:
                return response
        return aws_error(404, "UnknownOperationException", request.path)


async def _read(reader: asyncio.StreamReader) -> ApiRequest:
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = start.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length") or 0))
    return ApiRequest(method, unquote(target.partition("?")[0]), headers, body)


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
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class RuntimeApi:
    """The API from which one worker gets its invocations, one at a time, and sends the answers."""

    def __init__(self, function_arn: str) -> None:
        self._function_arn = function_arn
        self._waiting: asyncio.Queue[Invocation] = asyncio.Queue()
        self._current: Invocation | None = None
        # The result is None if the worker has requested its first event, or else the error by which
        # the worker failed to start.
        self.started: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

    def hand(self, invocation: Invocation) -> None:
        self._waiting.put_nowait(invocation)

    async def handle(self, request: ApiRequest) -> Response | None:
        action, _, kind = request.path.removeprefix(_PREFIX).rpartition("/")
        if kind == "next":
            return await self._next()
        if action == "init":
            self._start(Answer(request.body, "Unhandled"))
        else:
            invocation, self._current = self._current, None
            assert invocation is not None
            if not invocation.answer.done():
                invocation.answer.set_result(_answer(kind, request.body))
        return json_response(202, {"status": "OK"})

    async def _next(self) -> Response:
        self._start(None)
        invocation = self._current = await self._waiting.get()
        root = f"1-{now_ms() // 1000:08x}-{secrets.token_hex(12)}"
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self._function_arn,
            "Lambda-Runtime-Trace-Id": f"Root={root};Parent={secrets.token_hex(8)};Sampled=0",
        }
        return Response(200, invocation.payload, headers)

    def _start(self, error: Answer | None) -> None:
        if not self.started.done():
            self.started.set_result(error)


def _answer(kind: str, body: bytes) -> Answer:
    if kind == "response" and len(body) > RESPONSE_BYTES_MAX:
        message = f"Response payload size exceeded maximum allowed size ({RESPONSE_BYTES_MAX})."
        return failure("Function.ResponseSizeTooLarge", message)
    return Answer(body, None if kind == "response" else "Unhandled")


class ConnectionsApi:
    """`@connections`, the API of boto3's `apigatewaymanagementapi` client."""

    def __init__(self, gateway: SocketGateway) -> None:
        self._gateway = gateway

    async def handle(self, request: ApiRequest) -> Response | None:
        """Answer a request to this API; return None for other requests."""
        match = _CONNECTION.fullmatch(request.path)
        if match is None:
            return None
        connection = self._gateway.find(match[1])
        if connection is None or connection.ended.done():
            return aws_error(410, "GoneException", "")
        if request.method == "POST":
            if len(request.body) > MESSAGE_BYTES_MAX:
                message = f"Message exceeds the limit of {MESSAGE_BYTES_MAX} bytes"
                return aws_error(413, "PayloadTooLargeException", message)
            if not connection.post(request.body.decode(errors="replace")):
                return aws_error(429, "LimitExceededException", "Too Many Requests")
            return Response(200)
        if request.method == "DELETE":
            connection.end(NORMAL, "Connection Closed Normally")
            return Response(204)
        caller = connection.caller
        description = {
            "connectedAt": _iso(caller.connected_ms),
            "lastActiveAt": _iso(connection.active_ms),
            "identity": {"sourceIp": caller.source_ip, "userAgent": caller.user_agent},
        }
        return json_response(200, description)


def _iso(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LambdaApi:
    """The Invoke API of the functions *names*. The API runs the functions by *invoke*."""

    def __init__(
        self,
        names: Sequence[str],
        invoke: Invoke,
        *,
        retry_after_s: Sequence[float] = RETRY_AFTER_S,
    ) -> None:
        self._names = frozenset(names)
        self._invoke = invoke
        self._retry_after_s = retry_after_s
        self._queued: set[asyncio.Task[None]] = set()

    async def handle(self, request: ApiRequest) -> Response | None:
        """Answer a request to this API; return None for other requests."""
        match = _INVOCATIONS.fullmatch(request.path)
        if match is None:
            return None
        name = match[1].removeprefix(PREFIX)
        if name not in self._names:
            return aws_error(404, "ResourceNotFoundException", f"Function not found: {match[1]}")
        is_event = request.headers.get("x-amz-invocation-type") == "Event"
        bytes_max = ASYNC_BYTES_MAX if is_event else SYNC_BYTES_MAX
        if len(request.body) > bytes_max:
            message = f"Request must be smaller than {bytes_max} bytes for the Invoke operation"
            return aws_error(413, "RequestTooLargeException", message)
        payload = request.body or b"{}"
        if is_event:
            task = asyncio.ensure_future(self._deliver(name, payload))
            self._queued.add(task)
            task.add_done_callback(self._queued.discard)
            return Response(202)
        answer = await self._invoke(name, payload)
        headers = {"X-Amz-Executed-Version": "$LATEST", "Content-Type": "application/json"}
        if answer.error is not None:
            headers["X-Amz-Function-Error"] = answer.error
        return Response(200, answer.payload, headers)

    async def idle(self) -> None:
        """Return when no asynchronous invocation is queued or running."""
        while self._queued:
            await asyncio.wait(self._queued)

    async def stop(self) -> None:
        """Cancel the asynchronous invocations that are queued or running."""
        for task in self._queued:
            task.cancel()
        await asyncio.gather(*self._queued, return_exceptions=True)

    async def _deliver(self, name: str, payload: bytes) -> None:
        for pause_s in (*self._retry_after_s, None):
            answer = await self._invoke(name, payload)
            if answer.error is None or pause_s is None:
                return
            await asyncio.sleep(pause_s)
