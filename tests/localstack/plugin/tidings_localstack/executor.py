"""Lambda functions as processes: the executor of LocalStack that needs no Docker.

Runs inside LocalStack, which finds it by an entry point. A function's code is its worker's folder,
the layers are in its import path, and its output is the log of the invocation.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from localstack.services.lambda_.invocation.executor_endpoint import (  # type: ignore[import-not-found]
    StatusErrorException,
)
from localstack.services.lambda_.invocation.lambda_models import (  # type: ignore[import-not-found]
    FunctionVersion,
    InvocationResult,
)
from localstack.services.lambda_.invocation.plugins import (  # type: ignore[import-not-found]
    RuntimeExecutorPlugin,
)
from localstack.services.lambda_.invocation.runtime_executor import (  # type: ignore[import-not-found]
    RuntimeExecutor,
)

_KEPT = ("PATH", "HOME", "TMPDIR")  # of LocalStack's own environment
_HERE = "127.0.0.1"
INIT_S = 60  # Lambda gives ten, on a machine that does nothing else
POLL_S = 0.2  # how late the death of a worker may be seen
_PREFIX = "/2018-06-01/runtime/"


class TidingsExecutorPlugin(RuntimeExecutorPlugin):  # type: ignore[misc]
    name = "tidings"

    def load(self, *_: Any, **__: Any) -> type[ProcessExecutor]:
        return ProcessExecutor


class ProcessExecutor(RuntimeExecutor):  # type: ignore[misc]
    """One worker at a time, which LocalStack gives one invocation at a time."""

    def __init__(self, id: str, function_version: FunctionVersion) -> None:
        super().__init__(id=id, function_version=function_version)
        self._log = Path(tempfile.gettempdir(), f"worker-{id}.log")
        self._told: dict[str, str] = {}
        self._worker: Worker | None = None

    def start(self, env_vars: dict[str, str]) -> None:
        self._told = {name: str(value) for name, value in env_vars.items()}
        self._log.touch()
        self._live_worker()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        id, limit_s = payload["invoke-id"], self.function_version.config.timeout
        event = payload["payload"].encode()
        answer, printed = self._live_worker().invoke(id, event, limit_s, payload["trace-id"])
        logs = f"START RequestId: {id}\n{printed}END RequestId: {id}\n"
        return InvocationResult(id, answer.payload, is_error=answer.failed, logs=logs)

    def get_address(self) -> str:
        return _HERE

    def get_endpoint_from_executor(self) -> str:
        return _HERE

    def get_runtime_endpoint(self) -> str:
        return ""  # where the process in a container would report to

    def get_logs(self) -> str:
        return self._log.read_text(errors="replace")

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        for each in (function_version.config, *function_version.config.layers):
            each.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """LocalStack deletes the code itself."""

    def _live_worker(self) -> Worker:
        """Return the worker, a new one after a crash or a time-out, like Lambda."""
        if self._worker is not None and self._worker.alive:
            return self._worker
        self.stop()
        worker = self._worker = self._new()
        said = worker.started()
        if said.failed:
            raise StatusErrorException("the handler was not imported", payload=said.payload)
        return worker

    def _new(self) -> Worker:
        config = self.function_version.config
        code = config.code.get_unzipped_code_location()
        layers = [each.code.get_unzipped_code_location() / "python" for each in config.layers]
        environment = {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            **self._told,
            "LAMBDA_TASK_ROOT": str(code),
            "PYTHONPATH": os.pathsep.join(map(str, layers)),
        }
        arn = self.function_version.id.unqualified_arn()
        return Worker(config.handler, code, environment, arn, self._log)


class Worker:
    """*handler* below the folder *code*; the output of the process is appended to *log*."""

    def __init__(
        self, handler: str, code: Path, environment: Mapping[str, str], arn: str, log: Path
    ) -> None:
        self._api = RuntimeApi(arn)
        self._log = log
        with log.open("ab") as output:
            # In LocalStack's process group, so that it ends with it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "awslambdaric", handler],
                cwd=code,
                env={**environment, "AWS_LAMBDA_RUNTIME_API": self._api.address},
                stdout=output,
                stderr=output,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def started(self) -> Answer:
        """Return the result of the handler's import, or the reason of its failure."""
        return self._answer(INIT, INIT_S)

    def invoke(self, id: str, payload: bytes, limit_s: float, trace: str) -> tuple[Answer, str]:
        """Return the answer and the output of the call; past *limit_s* the worker is killed."""
        begun = self._log.stat().st_size
        self._api.hand(id, payload, limit_s, trace)
        answer = self._answer(id, limit_s)
        return answer, self._log.read_bytes()[begun:].decode(errors="replace")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._api.stop()

    def _answer(self, of: str, limit_s: float) -> Answer:
        until = time.monotonic() + limit_s
        while (left_s := until - time.monotonic()) > 0:
            try:
                answer = self._api.answers.get(timeout=min(left_s, POLL_S))
            except queue.Empty:
                if not self.alive:
                    code = self._process.returncode
                    return failure(of, "Runtime.ExitError", f"Runtime exited with {code}")
                continue
            if answer.of == of:
                return answer
        self._process.kill()
        self._process.wait()
        return failure(of, "Sandbox.Timedout", f"Task timed out after {limit_s:.2f} seconds")


@dataclass(frozen=True)
class Event:
    """The arguments of one invocation; *deadline_ms* is a moment."""

    id: str
    payload: bytes
    deadline_ms: int
    trace: str


@dataclass(frozen=True)
class Answer:
    """The worker's answer; *of* is an event's id, or `INIT` before the first one."""

    of: str
    payload: bytes
    failed: bool


INIT = "init"


def failure(of: str, kind: str, message: str) -> Answer:
    """Return the answer to an invocation that the handler itself did not answer."""
    told = {"errorType": kind, "errorMessage": message}
    return Answer(of, json.dumps(told).encode(), failed=True)


class RuntimeApi(ThreadingHTTPServer):
    """`events` go to the worker, `answers` come from it: the first one says that it is ready."""

    daemon_threads = True

    def __init__(self, function_arn: str) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.function_arn = function_arn
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._ready = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def ready(self) -> None:
        """It asks for an event, which it does only once its handler is imported."""
        if not self._ready:
            self._ready = True
            self.answers.put(Answer(INIT, b"", failed=False))

    def hand(self, id: str, payload: bytes, limit_s: float, trace: str) -> None:
        deadline_ms = int((time.time() + limit_s) * 1000)
        self.events.put(Event(id, payload, deadline_ms, trace))

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: RuntimeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path != f"{_PREFIX}invocation/next":
            self.send_error(404)
            return
        self.server.ready()
        event = self.server.events.get()
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": event.id,
            "Lambda-Runtime-Deadline-Ms": str(event.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self.server.function_arn,
            "Lambda-Runtime-Trace-Id": event.trace,
        }
        self._send(200, event.payload, headers)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match self.path.removeprefix(_PREFIX).split("/"):
            case ["init", "error"]:
                answer = Answer(INIT, body, failed=True)
            case ["invocation", id, "response" | "error" as kind]:
                answer = Answer(id, body, failed=kind == "error")
            case _:
                self.send_error(404)
                return
        self._send(202, b'{"status":"OK"}', {"Content-Type": "application/json"})
        self.server.answers.put(answer)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...
