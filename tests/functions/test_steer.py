"""steer: the steps of a sync that decide; tests/sync_machine runs them in their order."""

from __future__ import annotations

import json

import pytest

from functions.steer.handler import handle as steer
from tests.functions.cloud import Cloud, restart
from tidings.aws import clients
from tidings.core.errors import Chained, PlanMissing, TooLarge

BUCKET, PLAN = "syncs", "plans/one/"
REQUEST = {"id": "one", "bucket": BUCKET}
DECIDE = REQUEST | {"step": "judge", "sync": {"dry_run": False}}


def store(name: str, body: bytes) -> None:
    clients.objects().put_object(Bucket=BUCKET, Key=PLAN + name, Body=body)


@pytest.fixture(autouse=True)
def bucket(cloud: Cloud) -> None:
    clients.objects().create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )


def test_a_plan_that_is_not_there_fails_by_name() -> None:
    """The job ended well and left nothing."""
    with pytest.raises(PlanMissing, match=r"plans/one/summary\.json is missing"):
        steer(DECIDE, None)


def test_a_summary_is_not_larger_than_a_function_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before it is read."""
    monkeypatch.setattr("tidings.aws.s3.DOCUMENT_BYTES_MAX", 10)
    store("summary.json", b'{"creates": 1}')

    with pytest.raises(TooLarge, match="at most 10 bytes"):
        steer(DECIDE, None)


def test_a_report_takes_the_jobs_own_words() -> None:
    """If it left some; else the words of the error."""
    state = {"error": {"Error": "States.TaskFailed", "Cause": "ExitCode: 1"}}
    asked = REQUEST | {"step": "report", "state": state}

    before = steer(asked, None)
    store("failure.json", b'{"failed": "the dump has 3 bad lines"}')

    assert before["cause"] == "ExitCode: 1"
    assert steer(asked, None)["cause"] == "the dump has 3 bad lines"


def test_a_sync_of_a_copy_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a job is started: its plan could not be applied."""
    url = "https://a.example/feeds/main"
    monkeypatch.setenv("TIDINGS_SOURCES", json.dumps({"main": {"url": url}}))
    restart()
    asked = REQUEST | {
        "step": "check",
        "region": "eu-west-1",
        "request": {"dump": "s3://syncs/dumps/a.json"},
    }

    with pytest.raises(Chained, match=f"is a copy of {url}: post there"):
        steer(asked, None)


def test_what_an_export_begins_with_is_the_checkpoint_of_the_state() -> None:
    """A feed that no follower has read yet: 0."""
    assert steer(REQUEST | {"step": "base", "feed": "main"}, None) == {"through": 0}
