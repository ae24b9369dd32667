"""Notes each record of the log in the state table, under the follower's name."""

import os
from typing import Any

import boto3

_tables = boto3.client("dynamodb")


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    for record in event.get("Records", []):
        _note(record["dynamodb"]["Keys"]["page"]["N"])
    if "ring" in event:
        _note("ring " + event["ring"])
    return {"batchItemFailures": []}


def _note(key: str) -> None:
    _tables.put_item(
        TableName=os.environ["TIDINGS_STATE_TABLE"],
        Item={"bucket": {"S": os.environ["TIDINGS_FOLLOWER"]}, "key": {"S": key}},
    )
