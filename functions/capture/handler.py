"""Handle the DynamoDB stream of an owner's table: append its writes to a feed as operations."""

from __future__ import annotations

from typing import Any

from tidings.aws.dynamodb.stream_records import write_of
from tidings.aws.gateway import stream_triggers
from tidings.aws.runtime.telemetry import edge, logger
from tidings.aws.stage import stage
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    records, capturer = event["Records"], stage().capturer
    try:
        capturer.run([write_of(record) for record in records])
    except TidingsError as error:  # pages already in the log are not appended again
        logger().warning("writes wait", reason=str(error))
        return stream_triggers.failures([records[0]["dynamodb"]["SequenceNumber"]])
    return stream_triggers.failures([])
