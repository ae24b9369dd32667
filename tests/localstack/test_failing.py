"""A stream of records that cannot be handled: retried, given up and stored elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from infra.parts.function import KEY_PREFIX
from tests.localstack import calls
from tests.localstack.stage import Stage
from tests.localstack.template import resolved
from tidings.sync.feed import DynamoDBFeed

pytestmark = pytest.mark.localstack
RETRIES = 1  # the template's ten take LocalStack five minutes


@contextmanager
def broken(stage: Stage, name: str, **changed: Any) -> Iterator[str]:
    """Create the deployed mapping with options *changed*, into the follower *name* with tables that
    do not exist: it does not use the lease of the real one.
    """
    functions = boto3.client("lambda")
    told = resolved(stage.function("follow-state"), stage.named)
    absent = {"TIDINGS_LOG_TABLE": "not-there", "TIDINGS_CONTROL_TABLE": "not-there"}
    variables = told["Environment"]["Variables"] | absent
    stage.create(told | {"FunctionName": name, "Environment": {"Variables": variables}})
    _, options = stage.mapping("follow-state")
    made = functions.create_event_source_mapping(
        **options | {"FunctionName": name, "MaximumRetryAttempts": RETRIES} | changed
    )
    try:
        yield made["UUID"]
    finally:
        functions.delete_event_source_mapping(UUID=made["UUID"])


def test_given_up_records_go_to_the_bucket(stage: Stage, feed: DynamoDBFeed) -> None:
    """As in the template: whole, below the mapping's number, after the last try."""
    calls.post(calls.op("insert", "poison"))
    arn = stage.mapping("follow-state")[1]["DestinationConfig"]["OnFailure"]["Destination"]
    bucket, objects = arn.rpartition(":")[2], boto3.client("s3")

    with broken(stage, "broken-to-bucket") as uuid:
        found = calls.eventually(
            lambda: objects.list_objects_v2(Bucket=bucket, Prefix=f"{KEY_PREFIX}/{uuid}/").get(
                "Contents", []
            ),
            "the given up records are in the bucket",
        )
    said = json.loads(objects.get_object(Bucket=bucket, Key=found[0]["Key"])["Body"].read())

    assert said["requestContext"]["condition"] == "RetryAttemptsExhausted"
    assert said["requestContext"]["approximateInvokeCount"] == RETRIES + 1
    pages = [each["dynamodb"]["Keys"]["page"]["N"] for each in said["payload"]["Records"]]
    assert str(feed.stores.log.head("main")) in pages


def test_given_up_records_go_to_a_queue(stage: Stage) -> None:
    """The same with SQS as its destination: where in the stream they were, and no more."""
    calls.post(calls.op("insert", "poison"))
    messages = boto3.client("sqs")
    url = messages.create_queue(QueueName="given-up")["QueueUrl"]
    asked = messages.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    destination = {"OnFailure": {"Destination": asked["Attributes"]["QueueArn"]}}

    with broken(stage, "broken-to-queue", DestinationConfig=destination):
        found = calls.eventually(
            lambda: messages.receive_message(QueueUrl=url).get("Messages", []),
            "the given up records are in the queue",
        )
    said = json.loads(found[0]["Body"])
    _, options = stage.mapping("follow-state")

    assert said["DDBStreamBatchInfo"]["streamArn"] == options["EventSourceArn"]
    assert said["DDBStreamBatchInfo"]["batchSize"] >= 1
    assert "payload" not in said
