"""
Faster parsing of answers of Query and Scan: botocore's parser visits ten members per attribute.

Its parser takes some 10 us per page, twice as long as all the rest. Its `before-parse` hook allows
using the items as the JSON they are; binary values stay base64. For the 2,000 connections that a
sweep scans, the parser took 119 ms and the JSON takes 10.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_OK = 200


def read_items_raw(client: DynamoDBClient) -> None:
    """Make `client.query` and `client.scan` return items with binary values in base64."""
    for operation in ("Query", "Scan"):
        event = f"before-parse.dynamodb.{operation}"
        client.meta.events.register(event, _take_items, unique_id=f"tidings-{operation}")


def _take_items(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    if response_dict["status_code"] != _OK:
        return
    answer = json.loads(response_dict["body"])
    customized_response_dict["Items"] = answer.pop("Items", [])
    response_dict["body"] = json.dumps(answer).encode()
