"""sync_reports: what people are told of a sync in the cloud."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidings.core import limits
from tidings.core.sync.workflow import Who, question, report

WHO = Who("prod", "20261121-1")
SYNC = {"feed": "main", "dump": "s3://b/d.json"}
JUDGED = {
    "next": "apply",
    "outcome": "done",
    "stopped": None,
    "counts": {"creates": 1000, "updates": 2, "deletes": 3, "untouched": 4},
    "applied": {"applied": 1004, "moved": 1, "done": 0},
    "refused": None,
}


def reported(failed: str | None = None, **state: Any) -> dict[str, Any]:
    return report(WHO, {"sync": SYNC, "judged": JUDGED} | state, failed)


def test_the_question_says_what_is_planned_and_how_to_answer() -> None:
    """With the commands as they are to be typed."""
    message = question(WHO, SYNC, JUDGED | {"stopped": "30 of 40 objects would be deleted"})

    assert message["subject"] == "tidings prod: sync of main waits for your answer"
    assert "1,000 creates, 2 updates, 3 deletes, 4 untouched." in message["message"]
    assert "  tidings sync approve 20261121-1 --stage prod\n" in message["message"]
    assert "  tidings sync reject 20261121-1 --stage prod\n" in message["message"]
    assert "Within 3 days" in message["message"]


def test_a_report_counts() -> None:
    """For people in the message, for programs beside it."""
    message = reported()

    assert message["outcome"] == "done"
    assert (message["creates"], message["applied"], message["moved"]) == (1000, 1004, 1)
    assert "1,004 applied, 1 moved meanwhile" in message["message"]
    assert "error" not in message


@pytest.mark.parametrize(
    ("answer", "outcome"), [({"approved": True}, "done"), ({"approved": False}, "rejected")]
)
def test_the_answer_decides_the_outcome(answer: dict[str, bool], outcome: str) -> None:
    """Of a plan that was stopped."""
    stopped = JUDGED | {"next": "ask", "outcome": "stopped", "stopped": "too many"}

    assert reported(judged=stopped, answer=answer)["outcome"] == outcome


@pytest.mark.parametrize(
    ("error", "failed", "name", "cause"),
    [
        ({"Error": "States.TaskFailed", "Cause": "{}"}, "3 bad lines", "JobFailed", "3 bad lines"),
        (
            {"Error": "States.TaskFailed", "Cause": json.dumps({"StateDetails": "ExitCode: 1"})},
            None,
            "JobFailed",
            "ExitCode: 1",
        ),
        (
            {"Error": "InvalidSync", "Cause": json.dumps({"errorMessage": "dump: must be"})},
            None,
            "InvalidSync",
            "dump: must be",
        ),
        ({"Error": "Unavailable", "Cause": "busy"}, None, "Unavailable", "busy"),
        ({"Error": "States.Runtime", "Cause": "[1]"}, None, "Runtime", "[1]"),
    ],
)
def test_a_failure_is_told_by_name_and_sentence(
    error: dict[str, str], failed: str | None, name: str, cause: str
) -> None:
    """Never by a name of Step Functions' own, which a machine may not fail by."""
    message = reported(failed, error=error)

    assert (message["outcome"], message["error"], message["cause"]) == ("failed", name, cause)
    assert message["subject"] == "tidings prod: sync of main failed"


def test_a_failure_before_anything_is_known_is_told_as_well() -> None:
    """The request itself was wrong."""
    error = {"Error": "InvalidSync", "Cause": "dump: is missing"}

    message = report(WHO, {"request": {}, "error": error}, None)

    assert message["subject"] == "tidings prod: sync failed"
    assert "Dump: is missing." in message["message"]


def test_long_causes_and_subjects_are_cut() -> None:
    """SNS takes a hundred characters for a subject; stacks help nobody."""
    error = {"Error": "KeyError", "Cause": "x" * 10_000}

    message = reported(error=error, sync=SYNC | {"feed": "f" * 200})

    assert len(message["subject"]) < 100
    assert len(message["cause"]) == limits.SYNC_CAUSE_CHARS


def test_parts_that_were_refused_are_counted() -> None:
    """The first one is named, with what to do."""
    refused = {"key": "plans/1/1-insert/part-0.gz", "error": "PlanTooOld", "parts": 3}

    message = reported(judged=JUDGED | {"refused": refused})

    assert message["error"] == "PlanTooOld"
    assert "3 parts of the plan" in message["cause"] and refused["key"] in message["cause"]
    assert "Sync again." in message["cause"]
