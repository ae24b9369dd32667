"""
The Lambda Runtime API (2018-06-01) for one worker.

Each worker has its own API, like each sandbox on AWS. The worker requests the next invocation and
waits; it sends the answer or an error; then it requests again. It sends a random password, because
other users of the machine can connect to the port, and events contain clients' data.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass, field

from tidings.twin import clock
from tidings.twin.gateway.loopback import Request, Response, json_response
from tidings.twin.lambdas.runtime_client import basic

PASSWORD_BYTES = 24  # random; 192 bits cannot be guessed
RESPONSE_BYTES_MAX = 6 * 1024 * 1024  # Lambda's limit for an answer that is not streamed

_PREFIX = "/2018-06-01/runtime/"


@dataclass(frozen=True, slots=True)
class Answer:
    """
    The result of an invocation. *error*: None, or `Unhandled` and *payload* describes the error.
    """

    payload: bytes
    error: str | None = None


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
    """The API that passes invocations to one worker, one at a time, and receives its answers."""

    def __init__(self, function_arn: str) -> None:
        self._function_arn = function_arn
        self._user_info = f"worker:{clock.new_token(PASSWORD_BYTES).hex()}"
        self._waiting: asyncio.Queue[Invocation] = asyncio.Queue()
        self._current: Invocation | None = None
        # Resolved when the worker requests its first event: None, or the reason why it never will.
        self.started: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

    def address(self, port: int) -> str:
        """Return the value of AWS_LAMBDA_RUNTIME_API for a worker that is served on *port*."""
        return f"{self._user_info}@127.0.0.1:{port}"

    def hand(self, invocation: Invocation) -> None:
        self._waiting.put_nowait(invocation)

    async def handle(self, request: Request) -> Response:
        shown = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(shown, basic(self._user_info).encode()):
            return json_response(403, {"errorType": "Forbidden", "errorMessage": "Forbidden"})
        action = request.path.removeprefix(_PREFIX)
        if request.method == "GET" and action == "invocation/next":
            return await self._next()
        if request.method == "POST" and action == "init/error":
            self._start(Answer(request.body, "Unhandled"))
            return _accepted()
        if request.method == "POST" and action.startswith("invocation/"):
            return self._take(action, request.body)
        return json_response(404, {"errorType": "NotFound", "errorMessage": request.path})

    async def _next(self) -> Response:
        self._start(None)
        invocation = self._current = await self._waiting.get()
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self._function_arn,
            "Lambda-Runtime-Trace-Id": _trace_id(),
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
        return _accepted()

    def _start(self, error: Answer | None) -> None:
        if not self.started.done():
            self.started.set_result(error)


def _answer(kind: str, body: bytes) -> Answer:
    if kind == "response" and len(body) > RESPONSE_BYTES_MAX:
        message = f"Response payload size exceeded maximum allowed size ({RESPONSE_BYTES_MAX})."
        return failure("Function.ResponseSizeTooLarge", message)
    return Answer(body, None if kind == "response" else "Unhandled")


def _accepted() -> Response:
    return json_response(202, {"status": "OK"})


def _trace_id() -> str:
    seconds = clock.now_ms() // 1000
    root = f"1-{seconds:08x}-{clock.new_token(12).hex()}"
    return f"Root={root};Parent={clock.new_token(8).hex()};Sampled=0"
