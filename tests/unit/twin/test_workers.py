"""The processes of functions: pools of workers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.twin.environment import Program
from tests.twin.lambda_api import RESPONSE_BYTES_MAX, Answer
from tests.twin.workers import Pool

HANDLER = """
import os, sys, time
if os.environ.get("BROKEN"):
    raise RuntimeError("cannot be imported")
def handle(event, context):
    match event.get("do"):
        case "raise":
            raise KeyError("as told")
        case "exit":
            os._exit(3)
        case "sleep":
            time.sleep(event["seconds"])
        case "mark":
            open(event["path"], "w").close()
            time.sleep(60)
        case "flood":
            return "x" * event["size"]
    return {
        "pid": os.getpid(),
        "left_ms": context.get_remaining_time_in_millis(),
        "arn": context.invoked_function_arn,
        "id": context.aws_request_id,
        "trace": os.environ["_X_AMZN_TRACE_ID"],
        "name": context.function_name,
    }
"""
ARN = "arn:aws:lambda:us-east-1:000000000000:function:f"


@pytest.fixture
def options() -> dict[str, Any]:
    """Return the options that differ from those of other pools."""
    return {}


def having(**options: Any) -> pytest.MarkDecorator:
    """Mark a test to run with a pool with *options*."""
    return pytest.mark.parametrize("options", [options], ids=[",".join(options)])


@pytest.fixture
def pool(runner: asyncio.Runner, tmp_path: Path, options: dict[str, Any]) -> Iterator[Pool]:
    """Create a pool with one worker, unless *options* say otherwise; it is stopped after the
    test."""
    (tmp_path / "handler.py").write_text(HANDLER)
    settings: dict[str, Any] = {"workers_max": 1, "timeout_s": 5.0, "BROKEN": ""} | options
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(tmp_path),
        "AWS_LAMBDA_FUNCTION_NAME": "f",
        "BROKEN": settings["BROKEN"],
    }
    program = Program("f", tmp_path, settings["timeout_s"], environment, ARN)
    (tmp_path / "log").touch()
    made = Pool(program, tmp_path / "log", workers_max=settings["workers_max"])
    yield made
    runner.run(made.stop())


async def call(pool: Pool, **event: object) -> tuple[Answer, Any]:
    answer = await pool.invoke(json.dumps(event).encode())
    return answer, json.loads(answer.payload)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_handler_gets_the_context_that_lambda_gives_it(pool: Pool) -> None:
    """The deadline, the ARN, the request id and the trace id come from the Runtime API."""
    answer, value = await call(pool)

    assert answer.error is None
    assert 4000 < value["left_ms"] <= 5000
    assert value["arn"] == ARN
    assert value["name"] == "f"
    assert len(value["id"]) == 36
    assert value["trace"].startswith("Root=1-")


async def test_a_warm_worker_is_used_again(pool: Pool) -> None:
    """Invocations after each other run in one process."""
    pids = {(await call(pool))[1]["pid"] for _ in range(3)}

    assert len(pids) == 1


@having(workers_max=2)
async def test_invocations_at_once_use_as_many_workers_as_the_bound_allows(pool: Pool) -> None:
    """Two workers serve five invocations; the others wait and none is lost."""
    calls = [call(pool, do="sleep", seconds=0.05) for _ in range(5)]
    pids = {value["pid"] for _, value in await asyncio.gather(*calls)}

    assert len(pids) == 2


async def test_an_exception_is_answered_with_lambdas_error_document(pool: Pool) -> None:
    """The type, the message and the stack trace name what the handler raised; it stays warm."""
    _, before = await call(pool)
    answer, error = await call(pool, do="raise")
    _, after = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "KeyError"
    assert error["errorMessage"] == "'as told'"
    assert "handler.py" in error["stackTrace"][0]
    assert before["pid"] == after["pid"]


@having(timeout_s=0.5)
async def test_a_worker_over_its_time_limit_is_killed(pool: Pool) -> None:
    """The invocation is answered with a time-out, the process is gone, the next one is new."""
    _, before = await call(pool)
    answer, error = await call(pool, do="sleep", seconds=60)
    _, after = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "Sandbox.Timedout"
    assert error["errorMessage"].endswith("Task timed out after 0.50 seconds")
    assert not alive(before["pid"])
    assert after["pid"] != before["pid"]


async def test_a_crashed_worker_is_replaced(pool: Pool) -> None:
    """A process that exits in the middle fails its invocation and no other."""
    answer, error = await call(pool, do="exit")
    healthy, _ = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith("Runtime exited with exit status 3")
    assert healthy.error is None


async def test_a_worker_killed_while_idle_is_replaced(pool: Pool) -> None:
    """An invocation never goes to a process that has already ended."""
    _, before = await call(pool)
    os.kill(before["pid"], 9)
    answer, after = await call(pool)
    if answer.error is not None:  # the kill was noticed only while it was invoked
        answer, after = await call(pool)

    assert answer.error is None
    assert after["pid"] != before["pid"]


@having(BROKEN="1")
async def test_a_handler_that_cannot_be_imported_fails_each_invocation(pool: Pool) -> None:
    """The answer is the error of the import."""
    answer, error = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "RuntimeError"
    assert error["errorMessage"] == "cannot be imported"


async def test_stopping_leaves_no_process(pool: Pool) -> None:
    """Every worker of a stopped pool has ended."""
    _, value = await call(pool)
    await pool.stop()

    assert not alive(value["pid"])


@pytest.mark.parametrize("payload", [b"{", b""])
async def test_a_payload_that_is_not_json_fails_the_invocation_alone(
    pool: Pool, payload: bytes
) -> None:
    """The runtime client reports it and continues."""
    answer = await pool.invoke(payload)
    healthy, _ = await call(pool)

    assert answer.error == "Unhandled"
    assert healthy.error is None


async def test_an_answer_above_lambdas_limit_fails(pool: Pool) -> None:
    """Six megabytes with their quotes fit, one byte more does not."""
    limit = RESPONSE_BYTES_MAX
    fits = await pool.invoke(json.dumps({"do": "flood", "size": limit - 2}).encode())
    answer, error = await call(pool, do="flood", size=limit - 1)

    assert fits.error is None
    assert answer.error == "Unhandled"
    assert error["errorType"] == "Function.ResponseSizeTooLarge"


async def test_a_cancelled_invocation_ends_its_worker(pool: Pool, tmp_path: Path) -> None:
    """Its slot is free again and the next invocation has a process of its own."""
    mark = tmp_path / "mark"
    _, before = await call(pool)
    running = asyncio.ensure_future(call(pool, do="mark", path=str(mark)))
    while not mark.exists():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    _, after = await call(pool)

    assert not alive(before["pid"])
    assert after["pid"] != before["pid"]
