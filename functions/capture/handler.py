"""The stream of an owner's table: what its writes mean is appended to a feed."""

from __future__ import annotations

from typing import Any

from tidings.aws import doorbells, listeners_app
from tidings.aws.table_writes import write_of
from tidings.aws.telemetry import edge, logger
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    records, capturer = event["Records"], listeners_app.capturer()
    try:
        capturer.run([write_of(record) for record in records])
    except TidingsError as error:  # what is in the log already is found there
        logger().warning("writes wait", reason=str(error))
        return doorbells.failures([records[0]["dynamodb"]["SequenceNumber"]])
    return doorbells.failures([])
