"""Handle the DynamoDB stream of an owner's table: append its writes to a feed as operations."""

from __future__ import annotations

from typing import Any

from tidings.aws import wakeups
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge, logger
from tidings.aws.wakeups import write_of
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    records, capturer = event["Records"], stage().capturer
    try:
        capturer.run([write_of(record) for record in records])
    except TidingsError as error:  # Lambda retries all records; no write is appended twice
        logger().warning("writes of the table are not appended yet", reason=str(error))
        return wakeups.failures([records[0]["dynamodb"]["SequenceNumber"]])
    return wakeups.failures([])
