"""
Lambda functions as processes: the executor of LocalStack that needs no Docker.

Runs inside LocalStack, which finds it by an entry point. A function's code is its worker's folder,
the layers are in its import path, and what it prints is the log of the invocation.
"""

from __future__ import annotations

import os
import tempfile
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

from .worker import Worker

_KEPT = ("PATH", "HOME", "TMPDIR")  # of LocalStack's own environment
_HERE = "127.0.0.1"


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
        """A new one after a crash or a time-out, as Lambda has it."""
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
