"""capture: records of an owner's stream become operations, or are put aside, or come again."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from functions.capture.handler import handle
from tests.functions.cloud import Cloud, event, restart, without_dynamodb
from tidings.aws import clients
from tidings.aws.stage import stage
from tidings.aws.wakeups import write_of
from tidings.core.errors import InvalidSetting, UnknownFeed

VIDEOS = '{"type":"video","id":"{{id}}","parents":["user/{{owner}}"]}'
CREATED_S = 1_795_245_106


def record(name: str, kind: str = "INSERT", **images: Any) -> dict[str, Any]:
    """Return the record of the item *name*, as Lambda passes it on."""
    return {
        "eventID": f"e-{name}",
        "eventName": kind,
        "dynamodb": {
            "ApproximateCreationDateTime": CREATED_S,
            "Keys": {"id": {"S": name}},
            "SequenceNumber": f"1-{name}",
            **images,
        },
    }


def stream_of(*records: dict[str, Any]) -> dict[str, Any]:
    return event("stream_insert", Records=list(records))


@pytest.fixture(autouse=True)
def videos(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function of a table of videos."""
    monkeypatch.setenv("TIDINGS_CAPTURE", VIDEOS)
    restart()


def logged() -> list[dict[str, Any]]:
    return [json.loads(line) for page in stage().stores.log.read("main", 0) for line in page.lines]


def test_a_batch_of_records_is_one_page() -> None:
    """Inserts, updates and deletes with the previous item, at the time of the write."""
    image = {"id": {"S": "a"}, "owner": {"S": "ann"}}
    answer = handle(
        stream_of(
            record("a", NewImage=image),
            record("b", "MODIFY"),
            record("c", "REMOVE", OldImage=image),
        ),
        None,
    )

    assert answer == {"batchItemFailures": []}
    assert [(each["event"], each["id"], each["parents"]) for each in logged()] == [
        ("insert", "a", ["user/ann"]),
        ("update", "b", []),
        ("delete", "c", ["user/ann"]),
    ]
    assert logged()[0]["timestamp"] == "2026-11-21T07:11:46Z"
    assert stage().stores.log.head("main") == 1


def test_the_writes_of_a_table_are_read_from_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are those that the stream of a table with two keys and a set returns."""
    capture = {"type": "video", "id": "{{channel}}/{{number}}", "parents": ["user/{{owners}}"]}
    monkeypatch.setenv("TIDINGS_CAPTURE", json.dumps(capture))
    restart()
    owner: Any = clients.dynamodb()
    keys = ("channel", "HASH", "S"), ("number", "RANGE", "N")
    table = owner.create_table(
        TableName="owners-videos",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind, _ in keys],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": type_} for name, _, type_ in keys
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    key = {"channel": {"S": "a"}, "number": {"N": "1"}}
    for owners in (["ann", "bob"], ["bob"]):
        owner.put_item(TableName="owners-videos", Item={**key, "owners": {"SS": owners}})
    owner.put_item(TableName="owners-videos", Item={**key, "channel": {"S": "b/c"}})
    owner.delete_item(TableName="owners-videos", Key=key)
    streams: Any = boto3.client("dynamodbstreams")
    arn = table["TableDescription"]["LatestStreamArn"]
    (shard,) = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
    start = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    iterator = streams.get_shard_iterator(**start)["ShardIterator"]
    records = streams.get_records(ShardIterator=iterator)["Records"]
    for each in records:  # Lambda passes the time on as a number
        written = each["dynamodb"]
        written["ApproximateCreationDateTime"] = written["ApproximateCreationDateTime"].timestamp()

    assert handle(stream_of(*records), None) == {"batchItemFailures": []}
    assert [(each["event"], each["id"], each["parents"]) for each in logged()] == [
        ("insert", "a/1", ["user/ann", "user/bob"]),
        ("update", "a/1", ["user/bob"]),
        ("delete", "a/1", ["user/bob"]),
    ]
    (aside,) = owner.scan(TableName="outbox")["Items"]
    assert "an attribute contains the text that follows it" in aside["reason"]["S"]
    assert json.loads(aside["body"]["S"])["keys"] == {"channel": "b/c", "number": "1"}


def test_what_breaks_a_rule_lies_in_the_outbox() -> None:
    """With its key and the reason; it holds up nothing, and the function does not fail."""
    answer = handle(stream_of(record("x" * 600), record("b")), None)
    (aside,) = clients.dynamodb().scan(TableName="outbox")["Items"]

    assert answer == {"batchItemFailures": []}
    assert [each["id"] for each in logged()] == ["b"]
    assert aside["feed"] == {"S": "refused#main"}
    assert aside["reason"] == {"S": "id: holds at most 512 bytes, got 600"}
    assert json.loads(aside["body"]["S"]) == {"event": "insert", "keys": {"id": "x" * 600}}


def test_a_store_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda is asked to send all of the batch again."""
    without_dynamodb(monkeypatch)
    answer = handle(stream_of(record("a"), record("b")), None)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "1-a"}]}


@pytest.mark.parametrize(
    ("capture", "error"),
    [("", InvalidSetting), ('{"feed":"films","type":"v","id":"{{id}}"}', UnknownFeed)],
)
def test_without_a_capture_nothing_starts(
    monkeypatch: pytest.MonkeyPatch, capture: str, error: type[Exception]
) -> None:
    """A function that would drop records, or report no drop, fails instead."""
    monkeypatch.setenv("TIDINGS_CAPTURE", capture)
    restart()
    with pytest.raises(error):
        handle(stream_of(record("a")), None)


def test_attributes_are_texts() -> None:
    """Numbers as they are written, the members of lists and sets; other values are missing."""
    image = {
        "n": {"N": "1.5"},
        "set": {"NS": ["2", "1"]},
        "names": {"SS": ["b", "a"]},
        "list": {"L": [{"S": "b"}, {"N": "1"}, {"M": {}}, {"S": ""}]},
        **{"empty": {"S": ""}, "flag": {"BOOL": True}, "bytes": {"B": "eA=="}, "none": {"NULL": 1}},
    }
    assert write_of(record("a", NewImage=image)).after == {
        "n": "1.5",
        "set": ("1", "2"),
        "names": ("a", "b"),
        "list": ("b", "1"),
    }
