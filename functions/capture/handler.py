"""Handle the DynamoDB stream of an owner's table: append its writes to a feed as operations."""

from __future__ import annotations

from typing import Any

from tidings.aws import wakeups
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge, logger
from tidings.aws.wakeups import write_of
from tidings.core.errors import FeedDeleted, InvalidSetting, TidingsError, UnknownFeed


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    records = event["Records"]
    try:
        stage().capturer.run([write_of(record) for record in records])
    except (InvalidSetting, UnknownFeed):  # the deployment is wrong, so the function fails
        raise
    except FeedDeleted as error:
        logger().warning("writes of the table are dropped", reason=str(error))
    except TidingsError as error:  # Lambda retries all records; no write is appended twice
        logger().warning("writes of the table are not appended yet", reason=str(error))
        return wakeups.failures([records[0]["dynamodb"]["SequenceNumber"]])
    return wakeups.failures([])
