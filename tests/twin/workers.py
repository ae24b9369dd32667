"""The processes of the deployed functions: pools of workers, servers of streaming functions.

A worker runs one invocation at a time, under AWS's own runtime client. It is killed at the time
limit of the function, and replaced after a crash. In both cases the invocation is answered as on
Lambda. Schedules invoke functions every few minutes, like EventBridge Scheduler. The first run of
each relay begins when the twin starts.

A streaming function is an ASGI app. On AWS, the Lambda Web Adapter passes requests to the app. In
the twin, the gateway passes them, and aborts a response at the function's time limit. One process
serves all requests of a function.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.twin import forks, http_gateway
from tests.twin.dynamodb_local import wait_until_open
from tests.twin.environment import ACCOUNT, REGION, Program
from tests.twin.forks import Fork
from tests.twin.lambda_api import Answer, Invocation, Invoke, LoopbackServer, RuntimeApi, failure
from tests.twin.store import PREFIX
from tidings.aws.config.deployment import Schedule
from tidings.aws.effects import now_ms
from tidings.core.replication.relay import RELAY
from tidings.http.asgi import Message, Receive, Send, wait_for_disconnect
from tidings.server import processes

WORKERS_MAX = 2  # workers per function; enough to reveal races, and few enough for a laptop
INIT_S = 10.0  # Lambda's limit for importing the handler; the invocation has a limit of its own
RELAY_FUNCTION = f"follow-{RELAY}"
AGAIN_S = 1.0  # the pause before a relay that failed to start is started again
Pause = Callable[[float], Awaitable[None]]
START_S = 20.0  # imports take half a second; a loaded machine may need much more
# Headers that are about a single connection and are therefore not passed on.
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"host")
)
# The body of a request is not passed on.
_OF_REQUEST = _HOP_BY_HOP | {b"content-length"}
_OF_RESPONSE = _HOP_BY_HOP | {b"date"}  # the public server sets its own date
_UNREACHABLE = http_gateway.message(502, "Internal Server Error")


class Worker:
    """One process under awslambdaric and its Runtime API."""

    def __init__(self, program: Program, log: Path) -> None:
        self._program = program
        self._log = log
        self._api = RuntimeApi(program.arn)
        self._server = LoopbackServer(self._api.handle)
        self._child: Fork | None = None

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    async def start(self) -> Answer | None:
        """Return None after importing the handler, or the error of the import."""
        await self._server.start()
        self._child = Fork(self._program, self._log, forks.handle, f"127.0.0.1:{self._server.port}")
        return await self._first_of(self._api.started, INIT_S, "init")

    async def invoke(self, payload: bytes) -> Answer:
        limit_s = self._program.timeout_s
        invocation = Invocation(payload, now_ms() + int(limit_s * 1000))
        self._api.hand(invocation)
        answer = await self._first_of(invocation.answer, limit_s, invocation.request_id)
        assert answer is not None
        return answer

    async def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            await self._child.wait()
        await self._server.stop()

    async def _first_of(
        self,
        outcome: asyncio.Future[Answer] | asyncio.Future[Answer | None],
        limit_s: float,
        id_: str,
    ) -> Answer | None:
        assert self._child is not None
        ended = asyncio.ensure_future(self._child.wait())
        try:
            await asyncio.wait(
                (outcome, ended), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ended.cancel()
        if outcome.done():
            return outcome.result()
        code = self._child.exit_code
        await self.stop()
        if code is None:
            message = f"RequestId: {id_} Error: Task timed out after {limit_s:.2f} seconds"
            return failure("Sandbox.Timedout", message)
        how = f"exit status {code}" if code >= 0 else f"signal {-code}"
        return failure("Runtime.ExitError", f"RequestId: {id_} Error: Runtime exited with {how}")


class Pool:
    """The workers of one function. If all are busy, invocations wait in order of arrival."""

    def __init__(self, program: Program, log: Path, *, workers_max: int = WORKERS_MAX) -> None:
        self._program = program
        self._log = log
        self._slots = asyncio.Semaphore(workers_max)
        self._idle: list[Worker] = []
        self._workers: set[Worker] = set()

    async def invoke(self, payload: bytes) -> Answer:
        """Run the handler on *payload*; a failure is returned as an answer, never raised."""
        async with self._slots:
            worker = await self._warm() or self._new()
            reusable = False
            try:
                error = None if worker.alive else await worker.start()
                answer = error or await worker.invoke(payload)
                reusable = error is None and worker.alive
            finally:
                # After a cancelled call, kill the worker, because it still runs the invocation.
                if reusable:
                    self._idle.append(worker)
                else:
                    await asyncio.shield(self._discard(worker))
            return answer

    async def stop(self) -> None:
        """Kill every worker."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._workers.clear()
        self._idle.clear()

    async def _warm(self) -> Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await self._discard(worker)
        return None

    def _new(self) -> Worker:
        worker = Worker(self._program, self._log)
        self._workers.add(worker)
        return worker

    async def _discard(self, worker: Worker) -> None:
        self._workers.discard(worker)
        await worker.stop()


class Functions:
    """Every function that answers events, by its name in `deployment`.

    *stir* makes the pollers of the streams poll at once. It is called when an invocation begins and
    ends, because the invocation may write to a table with a stream.
    """

    def __init__(self, pools: Mapping[str, Pool], stir: Callable[[], None]) -> None:
        self.pools, self._stir = pools, stir

    async def invoke(self, name: str, payload: bytes) -> Answer:
        self._stir()
        try:
            return await self.pools[name].invoke(payload)
        finally:
            self._stir()

    async def stop(self) -> None:
        await asyncio.gather(*(pool.stop() for pool in self.pools.values()))


async def run_schedule(schedule: Schedule, invoke: Invoke, *, pause: Pause = asyncio.sleep) -> None:
    """Invoke the function of *schedule* until cancelled, first after one interval.

    A failed run is not retried, because the next run follows soon enough. The event is that of
    EventBridge Scheduler for a target without a configured input.
    """
    while True:
        await pause(schedule.every_minutes * 60)
        name = f"{PREFIX}{schedule.function}"
        event = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.scheduler",
            "account": ACCOUNT,
            "time": datetime.fromtimestamp(now_ms() // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": REGION,
            "resources": [f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{name}"],
            "detail": "{}",
        }
        await invoke(schedule.function, json.dumps(event).encode())


def relay_workers(feeds: Collection[str]) -> dict[str, int]:
    """Return the number of workers of the function that runs the relays of *feeds*.

    Each feed needs a worker, because a run of its relay lasts for minutes. One more worker is for a
    run that ends at once, because another run of the same relay is in progress.
    """
    return {RELAY_FUNCTION: len(feeds) + 1}


async def begin_relay(feed: str, invoke: Invoke) -> None:
    """Start the first run of the relay of *feed*; start it again after each failure."""
    payload = json.dumps({"ring": feed}).encode()
    while (await invoke(RELAY_FUNCTION, payload)).error is not None:
        await asyncio.sleep(AGAIN_S)


class StreamFunction:
    """The server process of a streaming function.

    The process is started by `start` or by the first request, and by the first request after a
    crash.
    """

    def __init__(self, program: Program, log: Path) -> None:
        self._program = program
        self._log = log
        self._child: Fork | None = None
        self._port = 0
        self._starting = asyncio.Lock()

    async def proxy(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass on one request and stream its response until either side ends it."""
        try:
            await self.start()
        except (TimeoutError, OSError):
            await http_gateway.respond(send, _UNREACHABLE)
            return
        pump = asyncio.ensure_future(self._pump(scope, send))
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not pump.done():
                pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pump

    async def start(self) -> None:
        """Start the server, unless it is running."""
        async with self._starting:
            if self._child is None or self._child.exit_code is not None:
                self._port = processes.free_port()
                self._child = Fork(self._program, self._log, forks.serve, self._port)
                await wait_until_open(self._port, START_S)

    async def stop(self) -> None:
        async with self._starting:  # wait for a child that is being started, to kill it
            if self._child is not None:
                self._child.kill()
                await self._child.wait()

    async def _pump(self, scope: Message, send: Send) -> None:
        headers = [(k, v) for k, v in scope["headers"] if k not in _OF_REQUEST]
        # The header in which the Lambda Web Adapter passes the time limit to an app.
        context = {
            "request_id": str(uuid.uuid4()),
            "deadline": now_ms() + int(self._program.timeout_s * 1000),
            "invoked_function_arn": self._program.arn,
            "env_config": {"function_name": self._program.name},
        }
        headers.append((b"x-amzn-lambda-context", json.dumps(context).encode()))
        headers += [(b"x-forwarded-host", v) for k, v in scope["headers"] if k == b"host"]
        query: bytes = scope["query_string"]
        path = scope.get("raw_path") or scope["path"].encode()
        target = path + b"?" + query if query else path  # unchanged; httpx would encode it again
        url = f"http://127.0.0.1:{self._port}"
        request = httpx.Request(
            scope["method"], url, headers=headers, extensions={"target": target}
        )
        started = False
        try:
            async with (
                asyncio.timeout(self._program.timeout_s),
                httpx.AsyncHTTPTransport(verify=False) as transport,
            ):
                answer = await transport.handle_async_request(request)
                started = True
                await _forward(answer, send)
        except (OSError, httpx.TransportError, TimeoutError):
            if not started:
                await http_gateway.respond(send, _UNREACHABLE)
            # The response is incomplete. Do not end it here, so that the server aborts it.


async def _forward(answer: httpx.Response, send: Send) -> None:
    headers = [(k.lower(), v) for k, v in answer.headers.raw if k.lower() not in _OF_RESPONSE]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    async for piece in answer.aiter_raw():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
