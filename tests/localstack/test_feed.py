"""A change on its way through LocalStack: table, stream, mapping, followers, clock."""

from __future__ import annotations

import boto3
import pytest

from tests.localstack import calls
from tests.localstack.stage import Stage
from tidings.sync.feed import DynamoDBFeed

pytestmark = pytest.mark.localstack
SWEPT_S = 300  # the clock strikes every minute, and a follower is late after some more seconds


def test_what_is_posted_is_followed(stage: Stage, feed: DynamoDBFeed) -> None:
    """Through the Lambda API into the log; its stream wakes both followers, the state is right."""
    ids = calls.post(calls.op("insert", "a"), calls.op("insert", "b"))
    ids += calls.post(calls.op("delete", "b"))

    assert ids == sorted(set(ids)) and len(ids) == 3
    assert calls.told(feed)[-3:] == ["insert a", "insert b", "delete b"]
    calls.eventually(lambda: calls.followed(feed), "both followers are at the end of the log")
    assert calls.living(feed, "video/a", "video/b") == {"video/a"}


def switch(uuid: str, *, on: bool) -> None:
    """Let a mapping deliver, or not; return once it is so."""
    functions = boto3.client("lambda")
    functions.update_event_source_mapping(UUID=uuid, Enabled=on)

    def done() -> bool:
        state = functions.get_event_source_mapping(UUID=uuid)["State"]
        return state == ("Enabled" if on else "Disabled")

    calls.eventually(done, "the mapping is switched")


def test_the_clock_wakes_where_a_stream_does_not(stage: Stage, feed: DynamoDBFeed) -> None:
    """With the mappings off, the scheduled sweep wakes the late followers through Lambda's API."""
    mappings = [stage.mapping(name)[0] for name in ("follow-state", "follow-push")]
    for uuid in mappings:
        switch(uuid, on=False)
    try:
        calls.post(calls.op("insert", "late"))
        calls.eventually(
            lambda: calls.followed(feed), "the sweep has woken both followers", SWEPT_S
        )
        assert calls.living(feed, "video/late") == {"video/late"}
    finally:
        for uuid in mappings:
            switch(uuid, on=True)
