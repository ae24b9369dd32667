"""Notes who left, and with which code."""

import os
from typing import Any

import boto3

_tables = boto3.client("dynamodb")


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    context = event["requestContext"]
    item = {
        "kind": {"S": "left"},
        "name": {"S": context["connectionId"]},
        "code": {"N": str(context["disconnectStatusCode"])},
    }
    _tables.put_item(TableName=os.environ["TIDINGS_CONNECTIONS_TABLE"], Item=item)
    return {"statusCode": 200}
