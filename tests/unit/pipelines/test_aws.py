"""Queues, topics, buses and streams of AWS as stores: moto, and answers as AWS documents them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import boto3
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from cloudevents.core.formats.json import JSONFormat
from moto import mock_aws

from tests.unit.pipelines.messages import RESET
from tidings.client.errors import Unwritten
from tidings.pipelines import EventBridge, Kinesis, Message, Parquet, Sns, Sqs, aws
from tidings.pipelines.messages import Busy, Overtaken, WrongPipeline

REGION = "eu-west-1"
QUEUE = f"https://sqs.{REGION}.amazonaws.com/123456789012/objects.fifo"
TOPIC = f"arn:aws:sns:{REGION}:123456789012:objects.fifo"


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create an empty account of AWS in this process."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of a store's waits for a service; none takes time."""
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    return waited


def message(name: str, page: int, op: str = "update", **fields: Any) -> Message:
    data = {"type": "video", "id": name, "timestamp": "2026-11-25T12:00:00Z", **fields}
    return Message(op, "video", data["timestamp"], data, f"65650000{page:010x}000000")


@cache
def client(service: Any) -> Any:
    """Create each client once: this takes longer than its use."""
    return boto3.client(service, region_name=REGION)


def queue(name: str = "objects.fifo") -> str:
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    made = client("sqs").create_queue(QueueName=name, Attributes=attributes)
    return str(made["QueueUrl"])


def received(url: str) -> list[dict[str, Any]]:
    """Return all messages of the queue, and remove them."""
    sqs, found = client("sqs"), []
    while messages := sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"]
    ).get("Messages"):
        for each in messages:
            found.append({**each["Attributes"], "body": json.loads(each["Body"])})
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    return found


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:{REGION}:123456789012:{url.rpartition('/')[2]}"


def opened(sink: Any, consumer: str = "p.store") -> Any:
    sink.open(consumer)
    return sink


def objects_and_pages(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the object and page of each message."""
    return [(each["body"]["data"]["id"], each["body"]["id"][8:18]) for each in found]


def test_a_fifo_queue_keeps_the_order_of_an_object_and_drops_repeats() -> None:
    """Its group is the object; a batch that comes again, from a new process, too, adds nothing."""
    url = queue()
    batch = [message(name, page) for page, name in enumerate("aabcab" * 4)]
    opened(Sqs(url)).write([RESET, *batch], 1)
    opened(Sqs(url)).write(batch, 2)
    found = received(url)
    assert len(found) == len(batch)
    for name in "abc":
        pages = [page for each, page in objects_and_pages(found) if each == name]
        assert pages == sorted(pages)
    assert {each["MessageGroupId"] for each in found} == {"video/a", "video/b", "video/c"}


def test_objects_of_a_copy_share_an_id_and_none_is_dropped() -> None:
    """The same holds for an object of another feed with the same id, and for one that left and came
    back.
    """
    url = queue()
    copied = [message(name, 7) for name in "abc"]
    opened(Sqs(url, client=client("sqs"))).write([*copied, message("a", 7, "leave")], 1)
    opened(Sqs(url, client=client("sqs")), "other.store").write(copied, 1)
    assert sorted(each["body"]["data"]["id"] for each in received(url)) == list("aaabbcc")


def test_a_standard_queue_is_taken_and_said() -> None:
    """It keeps no order, so no group is sent."""
    url = queue("objects")
    sink = opened(Sqs(url, client=client("sqs")))
    sink.write([message("a", 1), message("b", 1, "delete")], 1)
    assert str(sink) == "sqs objects (standard: in any order)"
    assert {each["body"]["op"] for each in received(url)} == {"update", "delete"}


def test_a_name_that_is_no_group_is_one_by_its_hash() -> None:
    """SQS takes 128 printable characters of ASCII."""
    url = queue()
    names = ["\u00e4", "b c", "d" * 400]
    opened(Sqs(url, client=client("sqs"))).write([message(name, 1) for name in names], 1)
    found = received(url)
    assert [each["body"]["data"]["id"] for each in found] == names
    assert len({each["MessageGroupId"] for each in found}) == 3


def test_a_topic_publishes_to_who_subscribed() -> None:
    """A FIFO topic with the same groups and ids."""
    sns, url = client("sns"), queue()
    topic = sns.create_topic(Name="objects.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    raw = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn_of(url), Attributes=raw)
    batch = [message(name, page) for page, name in enumerate("aab")]
    opened(Sns(topic, client=sns)).write(batch, 1)
    opened(Sns(topic, client=sns)).write(batch, 2)
    found = received(url)
    assert sorted(objects_and_pages(found)) == sorted((each.key, each.id[8:18]) for each in batch)
    assert {each["MessageGroupId"] for each in found} == {"video/a", "video/b"}


def test_a_bus_is_told_events_that_rules_find() -> None:
    """By their source and by the op, which is the detail type."""
    events, url = client("events"), queue("found")
    pattern = json.dumps({"source": [aws.SOURCE], "detail-type": ["delete"]})
    events.put_rule(Name="deletes", EventPattern=pattern)
    events.put_targets(Rule="deletes", Targets=[{"Id": "1", "Arn": arn_of(url)}])
    opened(EventBridge("default", client=events)).write(
        [message("a", 1), message("b", 2, "delete")], 1
    )
    assert [each["body"]["detail"]["data"]["id"] for each in received(url)] == ["b"]


def test_a_stream_keeps_the_order_of_an_object() -> None:
    """The object is the partition key; a batch above the limit of a call takes several calls."""
    kinesis = client("kinesis")
    kinesis.create_stream(StreamName="objects", ShardCount=2)
    batch = [message(f"x{number % 600}", number) for number in range(700)]
    opened(Kinesis("objects", client=kinesis)).write(batch, 1)
    found: dict[str, list[int]] = {}
    for shard in kinesis.describe_stream(StreamName="objects")["StreamDescription"]["Shards"]:
        names = {"StreamName": "objects", "ShardId": shard["ShardId"]}
        at = kinesis.get_shard_iterator(**names, ShardIteratorType="TRIM_HORIZON")
        for record in kinesis.get_records(ShardIterator=at["ShardIterator"])["Records"]:
            body = json.loads(record["Data"])
            assert record["PartitionKey"] == f"video/{body['data']['id']}"
            found.setdefault(record["PartitionKey"], []).append(int(body["id"][8:18], 16))
    assert sum(map(len, found.values())) == 700
    assert found["video/x5"] == [5, 605]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"text": "x" * 1_048_576}, "sqs accepts at most 1,048,576 bytes, not 1,0"),
        ({"tags": {1}}, "TypeError"),
    ],
    ids=["too large", "no json"],
)
def test_a_message_that_cannot_be_sent_is_told_by_its_place(
    fields: dict[str, Any], reason: str
) -> None:
    """The messages before it are written, and none after it; the service is not called for it."""
    url = queue()
    batch = [message("a", 1), message("b", 2, **fields), message("c", 3)]
    with pytest.raises(Unwritten, match=reason) as raised:
        opened(Sqs(url, client=client("sqs"))).write(batch, 1)
    assert raised.value.index == 1
    assert [name for name, _ in objects_and_pages(received(url))] == ["a"]


def failing_sqs(stub: Stubber, calls: list[list[tuple[int, str, bool]]]) -> Sqs:
    """Return a store whose calls fail for these entries: position, code, whether the sender is at
    fault.
    """
    count = 4
    for failures in calls:
        failed = [
            {"Id": str(at), "Code": code, "Message": "no", "SenderFault": own}
            for at, code, own in failures
            if code  # a message without a code is missing from the answer
        ]
        there = {str(at) for at in range(count)} - {str(at) for at, _, _ in failures}
        count = len([own for _, _, own in failures if not own])  # those come again
        told = [{"Id": at, "MessageId": at, "MD5OfMessageBody": ""} for at in sorted(there)]
        stub.add_response("send_message_batch", {"Successful": told, "Failed": failed})
    stub.activate()
    return Sqs(QUEUE, client=stub.client)


def failing_bus(stub: Stubber, calls: list[list[tuple[int, str, bool]]]) -> EventBridge:
    """Return the same for EventBridge."""
    count = 4
    for failures in calls:
        codes = {at: {"ErrorCode": code, "ErrorMessage": "no"} for at, code, _ in failures}
        entries = [codes.get(at, {"EventId": "1"}) for at in range(count)]
        count = len([own for _, _, own in failures if not own])  # those come again
        stub.add_response("put_events", {"FailedEntryCount": len(codes), "Entries": entries})
    stub.activate()
    return EventBridge("default", client=stub.client)


FAILING: list[tuple[str, str, Callable[..., Any]]] = [
    ("sqs", "ServiceUnavailable", failing_sqs),
    ("sqs", "", failing_sqs),
    ("events", "ThrottlingException", failing_bus),
]


@pytest.mark.parametrize(("service", "code", "failing"), FAILING)
def test_the_first_that_is_refused_is_told(
    service: Any, code: str, failing: Callable[..., Any], waits: list[float]
) -> None:
    """This holds for any number of refusals; throttled messages before it are sent first."""
    calls = [[(3, "Invalid", True), (0, code, False), (2, "Invalid", True)], []]
    with Stubber(boto3.client(service)) as stub:
        sink = opened(failing(stub, calls))
        with pytest.raises(Unwritten, match="Invalid: no") as raised:
            sink.write([message(name, 1) for name in "abcd"], 1)
        stub.assert_no_pending_responses()
    assert (raised.value.index, len(waits)) == (2, 1)


@pytest.mark.parametrize(("service", "code", "failing"), FAILING)
def test_a_service_that_stays_busy_blames_no_message(
    service: Any, code: str, failing: Callable[..., Any], waits: list[float]
) -> None:
    """It is tried a few times, and no later message is sent."""
    calls = [[(1, code, False)], *[[(0, code, False)]] * (aws.TRIES - 1)]
    with Stubber(boto3.client(service)) as stub:
        sink = opened(failing(stub, calls))
        with pytest.raises(Busy, match=code or "no result"):
            sink.write([message(name, 1) for name in "abcda"], 1)
        stub.assert_no_pending_responses()
    assert len(waits) == aws.TRIES - 1


def test_envelopes_that_others_read() -> None:
    """CloudEvents by its SDK, and Debezium's before and after."""
    url = queue()
    opened(Sqs(url, client=client("sqs"), envelope="cloudevents", feed="videos")).write(
        [message("a", 1)], 1
    )
    opened(Sqs(url, client=client("sqs"), envelope="debezium"), "p.d").write(
        [message("b", 1, "delete")], 1
    )
    cloud, change = (each["body"] for each in received(url))
    event = JSONFormat().read(None, json.dumps(cloud))
    assert (event.get_source(), event.get_subject()) == ("/feeds/videos", "video/a")
    assert (change["op"], change["before"]["id"], change["after"]) == ("d", "b", None)


def test_what_a_store_of_aws_needs() -> None:
    """It needs a valid address and a known envelope; the error has the given value."""
    for made in (lambda: Sqs("objects"), lambda: Sns("objects"), lambda: Kinesis("")):
        with pytest.raises(WrongPipeline, match="must be that of a"):
            made()
    with pytest.raises(WrongPipeline, match="one of tidings, cloudevents, debezium, not 'avro'"):
        Kinesis("objects", envelope="avro")
    assert [str(each) for each in (Sqs(QUEUE), Sns(TOPIC), EventBridge("app"))] == [
        "sqs objects.fifo",
        "sns objects.fifo",
        "events app",
    ]


def bucket() -> None:
    where = {"LocationConstraint": REGION}
    client("s3").create_bucket(Bucket="lake", CreateBucketConfiguration=where)


def rows_of(bucket: str) -> list[tuple[int, str]]:
    """Return `sequence` and key of each row, file by file in the order of their names."""
    keys = [each["Key"] for each in client("s3").list_objects_v2(Bucket=bucket)["Contents"]]
    bodies = [client("s3").get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]
    tables = [pyarrow.parquet.read_table(io.BytesIO(body)) for body in bodies]
    return [(row["sequence"], row["key"]) for table in tables for row in table.to_pylist()]


def test_files_are_written_to_s3_and_gone_on_with() -> None:
    """Numbers and sequences continue after the last file, however many there are."""
    bucket()
    for number in range(1, 6):
        sink = opened(Parquet("s3://lake/objects/"), "p.files")
        sink.write([message(f"a{number}", number), message(f"b{number}", number)], number)
    assert str(sink) == "Parquet files in s3://lake/objects"
    assert rows_of("lake") == [(at, f"{'ab'[at % 2]}{at // 2 + 1}") for at in range(10)]
    names = [each["Key"] for each in client("s3").list_objects_v2(Bucket="lake")["Contents"]]
    assert names == [f"objects/part-{number:010d}.parquet" for number in range(1, 6)]


def test_two_writers_of_one_prefix_cannot_overwrite_each_other() -> None:
    """The second one fails, and continues after the first one's file when it is opened again."""
    bucket()
    one, two = (opened(Parquet("s3://lake/objects"), "p.files") for _ in range(2))
    one.write([message("a", 1)], 1)
    with pytest.raises(Overtaken, match="has written s3://lake/objects/part-0000000001"):
        two.write([message("a", 1)], 2)
    two.open("p.files")
    two.write([message("a", 1)], 2)
    assert rows_of("lake") == [(0, "a"), (1, "a")]


def test_what_s3_needs() -> None:
    """It needs a bucket and a prefix; a missing bucket is an error before the first batch."""
    for address in ("s3://", "s3://lake", "s3://lake/"):
        with pytest.raises(WrongPipeline, match="folder must be s3://BUCKET"):
            Parquet(address)
    bucket()
    with pytest.raises(ClientError, match=r"NoSuchBucket|404"):
        opened(Parquet("s3://none/objects"), "p.files")
