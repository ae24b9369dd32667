"""A change on its way through LocalStack: table, stream, mapping, followers, clock."""

from __future__ import annotations

import json

import boto3
import pytest
from tidings.sync.target import Place

from tests.localstack import calls, reading
from tests.localstack.stage import Stage
from tests.localstack.waiting import eventually

pytestmark = pytest.mark.localstack
SWEPT_S = 300  # the clock strikes every minute, and a follower is late after some more seconds


def test_what_is_posted_is_followed(stage: Stage, feed: Place) -> None:
    """Through the Lambda API into the log; its stream rings both followers, the state is right."""
    ids = calls.post(calls.op("insert", "a"), calls.op("insert", "b"))
    ids += calls.post(calls.op("delete", "b"))

    assert ids == sorted(set(ids)) and len(ids) == 3
    assert reading.told(feed)[-3:] == ["insert a", "insert b", "delete b"]
    eventually(lambda: reading.followed(feed), "both followers are at the end of the log")
    assert reading.living(feed, "video/a", "video/b") == {"video/a"}


def test_a_refused_request_names_what_is_wrong(stage: Stage, feed: Place) -> None:
    """As over HTTP: the status, the code, and the field; nothing is in the log."""
    before = reading.told(feed)
    answer = calls.request("main", {"event": "insert", "type": "video"})

    assert answer.status == 400
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["field"]) == ("invalid_operation", "id")
    assert reading.told(feed) == before


def test_the_tables_are_those_of_the_template(stage: Stage) -> None:
    """Keys, stream and time to live read back as they were asked for."""
    tables = boto3.client("dynamodb")
    for logical in stage.template.of_type("AWS::DynamoDB::Table"):
        wanted = stage.template.resources[logical]["Properties"]
        name = stage.named(logical, None)
        found = tables.describe_table(TableName=name)["Table"]
        ttl = tables.describe_time_to_live(TableName=name)["TimeToLiveDescription"]

        assert found["KeySchema"] == wanted["KeySchema"]
        view = found.get("StreamSpecification", {}).get("StreamViewType")
        assert view == wanted.get("StreamSpecification", {}).get("StreamViewType")
        assert ttl["TimeToLiveStatus"] == "ENABLED"
        assert ttl["AttributeName"] == wanted["TimeToLiveSpecification"]["AttributeName"]


def switch(uuid: str, *, on: bool) -> None:
    """Let a mapping deliver, or not; return once it is so."""
    functions = boto3.client("lambda")
    functions.update_event_source_mapping(UUID=uuid, Enabled=on)

    def done() -> bool:
        state = functions.get_event_source_mapping(UUID=uuid)["State"]
        return state == ("Enabled" if on else "Disabled")

    eventually(done, "the mapping is switched")


def test_the_clock_rings_where_a_stream_does_not(stage: Stage, feed: Place) -> None:
    """With the mappings off, the scheduled sweep wakes the late followers through Lambda's API."""
    mappings = [stage.mapping(name)[0] for name in ("follow-state", "follow-push")]
    for uuid in mappings:
        switch(uuid, on=False)
    try:
        calls.post(calls.op("insert", "late"))
        eventually(lambda: reading.followed(feed), "the sweep has rung both followers", SWEPT_S)
        assert reading.living(feed, "video/late") == {"video/late"}
    finally:
        for uuid in mappings:
            switch(uuid, on=True)
