"""EMR Serverless for the interpreter, which refuses `startJobRun.sync`: a job is a function here.

The definition is left as it is; moto's own class for services it does not know is taught to wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from moto.stepfunctions.parser.api import HistoryEventType, TaskFailedEventDetails
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
    FailureEvent,
    FailureEventException,
)
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import (
    StatesErrorName,
)
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import (
    StatesErrorNameType,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (
    state_task_service_unsupported as unsupported,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.resource import (
    ResourceCondition,
)
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails

Job = Callable[[list[str]], int]  # from arguments to an exit code


def runs_jobs(monkeypatch: pytest.MonkeyPatch, job: Job) -> list[dict[str, Any]]:
    """Let a job run be *job* from now on; return the list of each run's parameters."""
    started: list[dict[str, Any]] = []
    patterns = {ResourceCondition.WaitForTaskToken, ResourceCondition.Sync}

    def start(
        self: Any, env: Any, resource_runtime_part: Any, normalised_parameters: Any, **role: Any
    ) -> None:
        started.append(normalised_parameters)
        arguments = normalised_parameters["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
        env.stack.append({"ExitCode": job(arguments)})

    def wait(self: Any, env: Any, **parameters: Any) -> Callable[[], Any]:
        code = env.stack[-1]["ExitCode"]
        if code:
            raise _failed(env, f"Job failed. ExitCode: {code}. See the log.")
        return lambda: {"State": "SUCCESS"}

    monkeypatch.setattr(unsupported, "_SUPPORTED_INTEGRATION_PATTERNS", patterns)
    service = unsupported.StateTaskServiceUnsupported
    monkeypatch.setattr(service, "_eval_service_task", start)
    monkeypatch.setattr(service, "_build_sync_resolver", wait)
    return started


def _failed(env: Any, details: str) -> FailureEventException:
    """Return the error of Step Functions for a failed run."""
    name = StatesErrorName(typ=StatesErrorNameType.StatesTaskFailed)
    cause = json.dumps({"State": "FAILED", "StateDetails": details})
    told = TaskFailedEventDetails(error=name.error_name, cause=cause)
    return FailureEventException(
        FailureEvent(
            env=env,
            error_name=name,
            event_type=HistoryEventType.TaskFailed,
            event_details=cast("EventDetails", {"taskFailedEventDetails": told}),
        )
    )
