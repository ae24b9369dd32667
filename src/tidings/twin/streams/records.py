"""Stream records as events of a function, and discarded batches as documents for S3."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidings.twin import clock
from tidings.twin.options import REGION
from tidings.twin.streams.batches import Batch, Condition, Record


@dataclass(frozen=True, slots=True)
class Shard:
    """The source of records."""

    stream_arn: str
    shard_id: str


def from_stream(record: Mapping[str, Any], stream_arn: str) -> Record:
    """Convert the record from the format of the DynamoDB Streams API to that of a Lambda event."""
    change = record["dynamodb"]
    event: dict[str, object] = {
        "eventID": record["eventID"],
        "eventName": record["eventName"],
        "eventVersion": record["eventVersion"],
        "eventSource": "aws:dynamodb",
        "awsRegion": REGION,
        "dynamodb": change,
        "eventSourceARN": stream_arn,
    }
    if "userIdentity" in record:
        event["userIdentity"] = record["userIdentity"]
    created_ms = int(change["ApproximateCreationDateTime"] * 1000)
    return Record(change["SequenceNumber"], created_ms, event)


def event_of(records: Sequence[Record]) -> bytes:
    return json.dumps({"Records": [record.event for record in records]}).encode()


def save_given_up(
    folder: Path, function_arn: str, shard: Shard, batch: Batch, condition: Condition
) -> Path:
    """Write the document of an S3 failure destination, and return its file."""
    now_ms = clock.now_ms()
    moment = clock.moment(now_ms)
    name = f"{moment:%Y-%m-%dT%H.%M.%S}-{clock.new_uuid()}.json"
    file = folder / function_arn.rpartition(":")[2] / shard.shard_id / f"{moment:%Y/%m/%d}" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(_given_up(shard, function_arn, batch, condition, now_ms), indent=1))
    return file


def _given_up(
    shard: Shard, function_arn: str, batch: Batch, condition: Condition, now_ms: int
) -> Mapping[str, object]:
    first, last = batch.records[0], batch.records[-1]
    return {
        "requestContext": {
            "requestId": clock.new_uuid(),
            "functionArn": function_arn,
            "condition": condition.value,
            "approximateInvokeCount": batch.failures,
        },
        "responseContext": {
            "statusCode": 200,
            "executedVersion": "$LATEST",
            "functionError": "Unhandled",
        },
        "version": "1.0",
        "timestamp": clock.iso(now_ms),
        "DDBStreamBatchInfo": {
            "shardId": shard.shard_id,
            "startSequenceNumber": first.sequence,
            "endSequenceNumber": last.sequence,
            "approximateArrivalOfFirstRecord": clock.iso(first.created_ms),
            "approximateArrivalOfLastRecord": clock.iso(last.created_ms),
            "batchSize": len(batch.records),
            "streamArn": shard.stream_arn,
        },
        "payload": event_of(batch.records).decode(),
    }
