"""follow-state and sweep: stream events, direct wake-ups and the schedule."""

from __future__ import annotations

import json

import pytest

from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import Cloud, become, event, without_dynamodb
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.http.settings import WrongSetting

NOTHING_FAILED: dict[str, list[object]] = {"batchItemFailures": []}


@pytest.fixture
def project(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The environment of follow-state."""
    become("state", monkeypatch)
    return cloud


def rows() -> dict[str, str]:
    """Key and event of every row of the state."""
    return {
        row.key: json.loads(row.line)["event"]
        for bucket in range(limits.BUCKETS)
        for row in stage().stores.state.read("main", bucket)
    }


def test_a_stream_event_brings_the_state_up_to_the_log(project: Cloud) -> None:
    """In the order of the pages, although the records name them the other way round."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    answers = [follow(event("stream_insert"), None) for _ in range(2)]

    assert answers == [NOTHING_FAILED, NOTHING_FAILED]
    assert rows() == {"video/x32": "insert", "a/1": "insert", "a/2": "delete"}
    assert stage().stores.followers.checkpoints("main") == {"state": 2}


def test_a_page_deleted_by_ttl_wakes_no_follower(project: Cloud) -> None:
    """A REMOVE is not an event: no lease is taken, nothing is read."""
    ingest(event("http_post"), None)
    answer = follow(event("stream_remove"), None)

    assert answer == NOTHING_FAILED
    assert stage().stores.followers.checkpoints("main") == {}


def test_a_store_that_does_not_answer_reports_the_first_record(
    project: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lambda then comes again with everything from that record on."""
    without_dynamodb(monkeypatch)
    answer = follow(event("stream_insert"), None)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "1222100000000031415926535"}]}


def test_a_follower_nobody_knows_fails_with_the_settings_name(cloud: Cloud) -> None:
    """A wrong deployment fails at once, not silently."""
    with pytest.raises(WrongSetting, match="TIDINGS_FOLLOWER"):
        follow({"ring": "main"}, None)


def test_the_schedule_wakes_followers_that_lag(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost wake-up costs a minute, no more."""
    monkeypatch.setattr(limits, "INDEX_EVERY", 2**60)  # else each quarter of an hour one more
    ingest(event("http_post"), None)
    sweep(event("schedule"), None)

    assert sorted(cloud.invoked) == [
        ("tidings-dev-follow-push", {"ring": "main"}),
        ("tidings-dev-follow-state", {"ring": "main"}),
    ]
