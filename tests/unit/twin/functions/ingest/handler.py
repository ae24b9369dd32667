"""Answers with the event it got, or does what the body's `do` says."""

import json
import os
import time
from typing import Any

import boto3

_tables = boto3.client("dynamodb")


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    order = json.loads(event.get("body") or "{}") if not event["isBase64Encoded"] else {}
    match order.get("do"):
        case "raise":
            raise ValueError("as told")
        case "exit":
            os._exit(3)
        case "sleep":
            time.sleep(order["seconds"])
        case "append":
            item = {"feed": {"S": "main"}, "page": {"N": str(order["page"])}}
            _tables.put_item(TableName=os.environ["TIDINGS_LOG_TABLE"], Item=item)
        case "environment":
            return {"statusCode": 200, "body": json.dumps(dict(os.environ))}
    return {
        "statusCode": 200,
        "headers": {"content-type": "application/json", "x-pid": os.getpid()},
        "body": json.dumps(event),
    }
