"""workflow: the request of a sync in the cloud, and the steps after its plan.

sync_reports: the message to people about a sync in the cloud.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidings.core import limits
from tidings.core.errors import InvalidFeed, InvalidSync, PlanMissing, UnknownFeed
from tidings.core.model.feeds import FixedFeeds
from tidings.core.sync import workflow
from tidings.core.sync.workflow import (
    SyncRequest,
    Tables,
    Who,
    decide_next_step,
    question,
    read_request,
    report,
    total,
)

FEEDS = FixedFeeds(frozenset({"main", "films"}))
DUMP = "s3://bucket/some/dump.json.gz"
TABLES = Tables("L", "S", "C", "eu-west-1")
SUMMARY = {
    "creates": 3,
    "updates": 0,
    "deletes": 1,
    "untouched": 9,
    "through": 7,
    "stopped": None,
    "allowable": False,
    "parts": [
        {"name": "1-insert/part-0.gz"},
        {"name": "1-insert/part-1.gz"},
        {"name": "3-delete/part-0.gz"},
    ],
}


def read(raw: object) -> SyncRequest | None:
    return read_request(raw, "syncs", FEEDS)


def test_a_dump_alone_is_enough() -> None:
    """The defaults are the feed `main` and the options of the job."""
    assert read({"dump": DUMP}) == SyncRequest("main", DUMP, False, ())


def test_arguments_are_words_of_their_own() -> None:
    """Nothing that a request holds can become another option."""
    request = read({"dump": "s3://bucket/a --no-deletes", "types": ["-x", "y"]})
    assert request is not None

    words = request.arguments("s3://syncs/plans/1/", TABLES)

    assert words[:4] == ["--feed", "main", "--dump", "s3://bucket/a --no-deletes"]
    assert words[-1] == "--types=-x,y"


def test_a_type_may_contain_a_comma() -> None:
    request = read({"dump": DUMP, "types": ["a,b", "c"]})
    assert request is not None
    assert request.arguments("s3://syncs/plans/1/", TABLES)[-1] == '--types=["a,b", "c"]'


@pytest.mark.parametrize("as_of", ["65f00000000000000700002a", "2026-11-21T03:00:00+01:00"])
def test_the_job_is_told_when_the_dump_began(as_of: str) -> None:
    """It is passed on unchanged: the job has the log, and checks the place."""
    request = read({"dump": DUMP, "as_of": as_of})
    assert request is not None
    assert request.options == (f"--as-of={as_of}",)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"dump": None}, "dump"),
        ({"dump": "http://bucket/key"}, "dump"),
        ({"dump": "s3://bucket/"}, "dump"),
        ({"dump": "s3://bucket/a\nb"}, "dump"),
        ({"dump": "s3://bucket/" + "a" * 1100}, "dump"),
        ({"dump": DUMP, "feed": 7}, "feed"),
        ({"dump": DUMP, "types": "video"}, "types"),
        ({"dump": DUMP, "as_of": "yesterday"}, "as_of"),
        ({"dump": DUMP, "as_of": 1700000000}, "as_of"),
        ({"dump": DUMP, "deletes": "no"}, "deletes"),
        ({"dump": DUMP, "expect": -1}, "expect"),
        ({"dump": DUMP, "skip_bad": True}, "skip_bad"),
        ({"dump": DUMP, "max_delete_share": 1.5}, "max_delete_share"),
        ({"dump": DUMP, "dry_run": 1}, "dry_run"),
        ({"dump": DUMP, "key": "dumps/main/a"}, "key"),
        ({"key": 7}, "key"),
    ],
)
def test_what_breaks_a_rule_is_named(raw: dict[str, Any], field: str) -> None:
    """The error has the field; nothing is started."""
    with pytest.raises(InvalidSync) as caught:
        read(raw)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("feed", "error"), [("none", UnknownFeed), ("no feed", InvalidFeed), ("", InvalidFeed)]
)
def test_the_feed_must_be_one_of_the_stage(feed: str, error: type[Exception]) -> None:
    """It is checked before a job costs money."""
    with pytest.raises(error):
        read({"dump": DUMP, "feed": feed})


@pytest.mark.parametrize(
    ("key", "dump"),
    [
        ("dumps/films/today.json.gz", "dumps/films/today.json.gz"),
        ("dumps/films/week/_SUCCESS", "dumps/films/week/"),
        ("dumps/films/a/b/_SUCCESS", "dumps/films/a/b/"),
        ("dumps/films/week/part-1.gz", None),
        ("dumps/films/_SUCCESS", None),
        ("dumps/films/.hidden", None),
        ("dumps/films/week/", None),
        ("dumps/films", None),
        ("uploads/films/today.json", None),
    ],
)
def test_an_upload_is_a_dump_or_a_part_of_one(key: str, dump: str | None) -> None:
    """A dump is a file right below its feed, or a complete folder; a marker alone starts
    nothing."""
    wanted = None if dump is None else SyncRequest("films", f"s3://syncs/{dump}", False, ())

    assert read({"key": key}) == wanted


def test_groups_are_applied_one_after_the_other() -> None:
    """Inserts come before deletes; an event without corrections has no group."""
    following = decide_next_step("plans/1/", SUMMARY, dry_run=False)

    assert following["next"] == workflow.APPLY
    assert following["groups"] == ["plans/1/1-insert/part-", "plans/1/3-delete/part-"]
    assert following["through"] == 7


@pytest.mark.parametrize(
    ("changes", "dry_run", "following", "outcome"),
    [
        ({"stopped": "too many", "allowable": True}, False, "ask", "stopped"),
        ({"stopped": "too many", "allowable": True}, True, "end", "stopped"),
        ({"stopped": "empty", "allowable": False}, False, "end", "stopped"),
        ({"parts": []}, False, "end", "nothing"),
        ({"parts": []}, True, "end", "nothing"),
        ({}, True, "end", "planned"),
    ],
)
def test_what_follows_a_plan(
    changes: dict[str, Any], dry_run: bool, following: str, outcome: str
) -> None:
    """A question is asked only for plans that may be approved, and never for a dry run."""
    decided = decide_next_step("plans/1/", SUMMARY | changes, dry_run=dry_run)

    assert (decided["next"], decided["outcome"]) == (following, outcome)


def test_a_job_that_leaves_no_plan_failed() -> None:
    """Its exit code does not matter."""
    with pytest.raises(PlanMissing, match=r"plans/1/summary\.json"):
        decide_next_step("plans/1/", None, dry_run=False)


def test_what_was_applied_adds_up() -> None:
    """The counts are added over the parts of a group and over groups; the first group is then
    done."""
    before = decide_next_step("plans/1/", SUMMARY, dry_run=False)
    part = {"applied": 2, "moved": 1, "done": 0}

    once = total(before, [part, part])
    twice = total(once, [part])

    assert once["groups"] == before["groups"][1:] and twice["groups"] == []
    assert twice["applied"] == {"applied": 6, "moved": 3, "done": 0}
    assert twice["refused"] is None


def test_nothing_follows_a_part_that_was_refused() -> None:
    """The counts of the other parts are still included."""
    part = {"applied": 2, "moved": 0, "done": 0}
    refused = {**part, "refused": {"key": "k", "error": "PlanTooOld"}}

    following = total(
        decide_next_step("plans/1/", SUMMARY, dry_run=False), [part, refused, refused]
    )

    assert following["groups"] == []
    assert following["refused"] == {"key": "k", "error": "PlanTooOld", "parts": 2}
    assert following["applied"]["applied"] == 6


def test_an_export_takes_the_place_of_the_scan() -> None:
    """The job takes the last of two options; the folder is the one DynamoDB makes."""
    sync = workflow.validate_request(read({"dump": DUMP}), "1", "syncs", TABLES)
    arn = "arn:aws:dynamodb:eu-west-1:1:table/state/export/0123-abc"

    arguments = workflow.add_export(sync, "1", "syncs", arn, 42)["arguments"]

    assert arguments[-6:] == [
        "--state",
        "scan",
        "--state",
        "s3://syncs/exports/1/AWSDynamoDB/0123-abc/",
        "--through",
        "42",
    ]


WHO = Who("prod", "20261121-1")
SYNC = {"feed": "main", "dump": "s3://b/d.json"}
DECISION = {
    "next": "apply",
    "outcome": "done",
    "stopped": None,
    "counts": {"creates": 1000, "updates": 2, "deletes": 3, "untouched": 4},
    "applied": {"applied": 1004, "moved": 1, "done": 0},
    "refused": None,
}


def reported(failed: str | None = None, **state: Any) -> dict[str, Any]:
    return report(WHO, {"sync": SYNC, "judged": DECISION} | state, failed)


def test_the_question_says_what_is_planned_and_how_to_answer() -> None:
    """It has the commands as they must be typed."""
    message = question(WHO, SYNC, DECISION | {"stopped": "30 of 40 objects would be deleted"})

    assert message["subject"] == "tidings prod: sync of main waits for your answer"
    assert "1,000 creates, 2 updates, 3 deletes, 4 untouched." in message["message"]
    assert "  tidings sync approve 20261121-1 --stage prod\n" in message["message"]
    assert "  tidings sync reject 20261121-1 --stage prod\n" in message["message"]
    assert "Within 3 days" in message["message"]


def test_a_report_counts() -> None:
    """The message has a text for people, and fields for programs."""
    message = reported()

    assert message["outcome"] == "done"
    assert (message["creates"], message["applied"], message["moved"]) == (1000, 1004, 1)
    assert "1,004 applied, 1 not applied because their objects changed" in message["message"]
    assert "error" not in message


@pytest.mark.parametrize(
    ("answer", "outcome"), [({"approved": True}, "done"), ({"approved": False}, "rejected")]
)
def test_the_answer_decides_the_outcome(answer: dict[str, bool], outcome: str) -> None:
    """The plan was stopped, and a person answered."""
    stopped = DECISION | {"next": "ask", "outcome": "stopped", "stopped": "too many"}

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
    """SNS allows a hundred characters for a subject; long stack traces do not help."""
    error = {"Error": "KeyError", "Cause": "x" * 10_000}

    message = reported(error=error, sync=SYNC | {"feed": "f" * 200})

    assert len(message["subject"]) < 100
    assert len(message["cause"]) == limits.SYNC_CAUSE_CHARS


def test_parts_that_were_refused_are_counted() -> None:
    """The first one is named, with what to do."""
    refused = {"key": "plans/1/1-insert/part-0.gz", "error": "PlanTooOld", "parts": 3}

    message = reported(judged=DECISION | {"refused": refused})

    assert message["error"] == "PlanTooOld"
    assert "3 parts of the plan" in message["cause"] and refused["key"] in message["cause"]
    assert "Sync again." in message["cause"]
