"""A Lambda function as a process of LocalStack, without LocalStack: what becomes of an event."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.localstack.plugin.tidings_localstack.worker import Worker

LIMIT_S = 30
START = Callable[[str], Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[START]:
    """Starts a worker of a handler with this text."""
    workers: list[Worker] = []

    def started(text: str) -> Worker:
        (tmp_path / "handler.py").write_text(text)
        environment = {"PATH": os.environ["PATH"], "TOLD": "yes"}
        log = tmp_path / "log"
        workers.append(Worker("handler.handle", tmp_path, environment, "arn:aws:lambda:x", log))
        return workers[-1]

    yield started
    for worker in workers:
        worker.stop()


def test_an_event_is_answered(start: START) -> None:
    """By the handler, in the function's environment; what it prints is the invocation's log."""
    worker = start(
        "import os\n"
        "def handle(event, context):\n"
        "    print('heard', event)\n"
        "    return {'told': os.environ['TOLD'], 'request': context.aws_request_id}\n"
    )
    assert not worker.started().failed
    for id in ("one", "two"):
        answer, printed = worker.invoke(id, b"[7]", LIMIT_S, "Root=1")

        assert (answer.failed, json.loads(answer.payload)) == (
            False,
            {"told": "yes", "request": id},
        )
        assert printed == "heard [7]\n"


def test_an_error_keeps_its_name(start: START) -> None:
    """A state machine catches by it; the worker lives on."""
    worker = start("def handle(event, context):\n    return {}[event]\n")
    worker.started()
    answer, _ = worker.invoke("one", b'"key"', LIMIT_S, "Root=1")

    assert (answer.failed, json.loads(answer.payload)["errorType"]) == (True, "KeyError")
    assert worker.alive


def test_a_handler_that_cannot_be_imported_says_why(start: START) -> None:
    """Before the first event."""
    said = start("import absent\n").started()

    assert said.failed
    assert "absent" in json.loads(said.payload)["errorMessage"]


@pytest.mark.parametrize(
    ("body", "limit_s", "kind"),
    [("time.sleep(60)", 1, "Sandbox.Timedout"), ("os._exit(7)", LIMIT_S, "Runtime.ExitError")],
    ids=["late", "dead"],
)
def test_a_worker_that_does_not_answer_is_ended(
    start: START, body: str, limit_s: int, kind: str
) -> None:
    """By its limit or by itself; the answer is Lambda's, and the next event gets a new one."""
    worker = start(f"import os, time\ndef handle(event, context):\n    {body}\n")
    worker.started()
    answer, _ = worker.invoke("one", b"{}", limit_s, "Root=1")

    assert (answer.failed, json.loads(answer.payload)["errorType"]) == (True, kind)
    assert not worker.alive
