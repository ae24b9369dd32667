"""The deployed state machine of syncs in LocalStack, with the real job on this machine's Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from tests.localstack import calls
from tests.localstack.stage import Stage
from tidings.aws.config.stages import SYNC_BUCKET_OUTPUT, SYNC_MACHINE_OUTPUT
from tidings.sync.command import NotWaiting, answer
from tidings.sync.feed import DynamoDBFeed

pytestmark = [pytest.mark.localstack, pytest.mark.java, pytest.mark.spark]
FEED = "synced"  # of its own: a dump says everything that there is in its feed
OLD, DUMPED, NEW = (f"2026-0{month}-01T00:00:00Z" for month in (1, 2, 3))
Told = Callable[[], tuple[str, str]]
KEPT = [f"kept{number}" for number in range(20)]
JOB_S = 600  # a job takes twenty seconds on a machine that does nothing else


def queue(name: str) -> tuple[str, str]:
    """Create a queue; return its address, and its name for senders."""
    messages = boto3.client("sqs")
    url = messages.create_queue(QueueName=name)["QueueUrl"]
    asked = messages.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, asked["Attributes"]["QueueArn"]


def next_in(url: str) -> dict[str, Any]:
    """Return the next message in a queue, and remove it."""
    messages = boto3.client("sqs")
    found = calls.eventually(
        lambda: messages.receive_message(QueueUrl=url).get("Messages", []), "a message", JOB_S
    )
    messages.delete_message(QueueUrl=url, ReceiptHandle=found[0]["ReceiptHandle"])
    body: dict[str, Any] = json.loads(found[0]["Body"])
    return body


@pytest.fixture(scope="module")
def told(stage: Stage) -> Callable[[], tuple[str, str]]:
    """The next notification about a sync: its subject and its message."""
    url, arn = queue("reports")
    topic = stage.output("SyncsTopic")
    boto3.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)

    def following() -> tuple[str, str]:
        found = next_in(url)
        return found["Subject"], found["Message"]

    return following


@pytest.fixture(scope="module")
def synced(place_of: Callable[[str], DynamoDBFeed]) -> DynamoDBFeed:
    return place_of(FEED)


def post(*operations: dict[str, Any]) -> None:
    calls.post(*operations, feed=FEED)


def upload(stage: Stage, name: str, *ids: str) -> str:
    """Upload a dump of these objects to start a sync; return its key."""
    common = {"type": "video", "parents": [], "timestamp": DUMPED}
    body = "".join(f"{json.dumps({**common, 'id': each})}\n" for each in ids)
    bucket, key = stage.output(SYNC_BUCKET_OUTPUT), f"dumps/{FEED}/{name}.json"
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=body.encode())
    return key


def start(stage: Stage, key: str) -> str:
    """Start it like the rule: LocalStack delivers nothing to a machine through a transformer."""
    return str(
        boto3.client("stepfunctions").start_execution(
            stateMachineArn=stage.output(SYNC_MACHINE_OUTPUT), input=json.dumps({"key": key})
        )["executionArn"]
    )


def ended(execution: str) -> dict[str, Any]:
    """Return the status and output of the finished execution."""
    machines = boto3.client("stepfunctions")

    def look() -> dict[str, Any] | None:
        found = machines.describe_execution(executionArn=execution)
        return None if found["status"] == "RUNNING" else dict(found)

    found = calls.eventually(look, "the execution has ended", JOB_S)
    assert found is not None
    return found


def said_yes(stage: Stage, id: str) -> bool:
    """Approve the sync *id*; return True if it waited for that."""
    clients = {"objects": boto3.client("s3"), "machines": boto3.client("stepfunctions")}
    try:
        answer(id, approved=True, bucket=stage.output(SYNC_BUCKET_OUTPUT), **clients)
    except NotWaiting:
        return False
    return True


def test_an_upload_is_heard(stage: Stage) -> None:
    """The bucket notifies the bus, and the rule sends the keys of dumps to its target."""
    (rule,) = stage.make("AWS::Events::Rule")
    (logical,) = stage.template.of_type("AWS::Events::Rule")
    (target,) = stage.template.resources[logical]["Properties"]["Targets"]
    url, arn = queue("heard")
    also = {"Id": "also", "Arn": arn, "InputTransformer": target["InputTransformer"]}
    boto3.client("events").put_targets(Rule=rule, Targets=[also])

    bucket = stage.output(SYNC_BUCKET_OUTPUT)
    boto3.client("s3").put_object(Bucket=bucket, Key="elsewhere/a.json", Body=b"{}")
    key = upload(stage, "heard", "a")

    assert next_in(url) == {"key": key}
    boto3.client("s3").delete_object(Bucket=bucket, Key=key)


def test_O66_a_dump_makes_the_feed_agree(stage: Stage, synced: DynamoDBFeed, told: Told) -> None:
    """From the request to the log: the job's plan is applied part by part, and reported."""
    post(*(calls.op("insert", each, timestamp=OLD) for each in ("old", "gone")))
    post(*(calls.op("insert", each, timestamp=NEW) for each in KEPT))
    calls.eventually(lambda: calls.followed(synced), "the state is at the end of the log")
    before = len(calls.told(synced))

    done = ended(start(stage, upload(stage, "today", "new", "old", *KEPT)))
    subject, _ = told()

    assert done["status"] == "SUCCEEDED", done["cause"]
    assert json.loads(done["output"])["applied"] == 3
    assert subject == f"tidings dev: sync of {FEED} done"
    assert calls.told(synced)[before:] == ["insert new", "update old", "delete gone"]


def test_a_plan_that_deletes_too_much_waits(stage: Stage, synced: DynamoDBFeed, told: Told) -> None:
    """Nothing is applied before an approval; then all of it is."""
    unwanted = [f"unwanted{number}" for number in range(9)]
    post(*(calls.op("insert", each, timestamp=OLD) for each in unwanted))
    calls.eventually(lambda: calls.followed(synced), "the state is at the end of the log")
    before = len(calls.told(synced))

    execution = start(stage, upload(stage, "short", "new", "old", *KEPT))
    _, question = told()
    meanwhile = calls.told(synced)[before:]
    id = execution.rpartition(":")[2]
    calls.eventually(lambda: said_yes(stage, id), "the answer is taken")
    done = ended(execution)

    assert "9 of 31 objects (29%) would be deleted" in question
    assert meanwhile == []
    assert done["status"] == "SUCCEEDED", done["cause"]
    assert set(calls.told(synced)[before:]) == {f"delete {each}" for each in unwanted}
