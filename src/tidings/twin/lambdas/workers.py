"""
Worker processes: a small pool for each deployed function, under AWS's own runtime client.

A worker runs one invocation at a time. It is killed at its time limit, and replaced after a crash;
in both cases the invocation is answered like on Lambda.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tidings.server import processes
from tidings.twin import clock
from tidings.twin.gateway.loopback import LoopbackServer
from tidings.twin.lambdas import runtime_client
from tidings.twin.lambdas.runtime_api import Answer, Invocation, RuntimeApi, failure

WORKERS_MAX = 2  # per function: enough to reveal races, few enough for a laptop
INIT_S = 10.0  # Lambda's limit for importing the handler, separate from the invocation's


@dataclass(frozen=True, slots=True)
class Program:
    """
    The code of a worker: *folder*/handler.py with *environment*, at most *timeout_s* per call.
    """

    name: str
    folder: Path
    timeout_s: float
    environment: Mapping[str, str]
    arn: str


class Worker:
    """One process under awslambdaric and its Runtime API."""

    def __init__(self, program: Program, log: IO[bytes]) -> None:
        self._program = program
        self._log = log
        self._api = RuntimeApi(program.arn)
        self._server = LoopbackServer(self._api.handle)
        self._child: processes.Child | None = None

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    async def start(self) -> Answer | None:
        """Return None after importing the handler, or the error of the import."""
        await self._server.start()
        environment = {
            **self._program.environment,
            "AWS_LAMBDA_RUNTIME_API": self._api.address(self._server.port),
        }
        self._child = await processes.start(
            [sys.executable, "-P", runtime_client.__file__, "handler.handle"],
            output=self._log,
            environment=environment,
            folder=self._program.folder,
        )
        return await self._unless_ended(self._api.started, INIT_S, "init")

    async def invoke(self, payload: bytes) -> Answer:
        limit_s = self._program.timeout_s
        invocation = Invocation(payload, clock.now_ms() + int(limit_s * 1000))
        self._api.hand(invocation)
        answer = await self._unless_ended(invocation.answer, limit_s, invocation.request_id)
        assert answer is not None
        return answer

    async def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            await self._child.wait()
        await self._server.stop()

    async def _unless_ended(
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
    """The workers of one function. Further invocations wait in order of arrival."""

    def __init__(self, program: Program, log: IO[bytes], *, workers_max: int = WORKERS_MAX) -> None:
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
                # A cancelled invocation is still running; only killing its worker stops it.
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
    """
    Every function that answers events, by its name in the blueprint.

    *stir* is called when an invocation begins and when it ends: it may have written records.
    """

    def __init__(self, pools: Mapping[str, Pool], stir: Callable[[], None]) -> None:
        self._pools, self._stir = pools, stir

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._pools)

    async def invoke(self, name: str, payload: bytes) -> Answer:
        self._stir()
        try:
            return await self._pools[name].invoke(payload)
        finally:
            self._stir()

    async def stop(self) -> None:
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))
