"""Sends the event back to its sender, or does what the message's `do` says."""

import json
import os
from typing import Any

import boto3

_sockets = boto3.client("apigatewaymanagementapi", endpoint_url=os.environ["TIDINGS_SOCKETS_URL"])
_functions = boto3.client("lambda")


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    order = json.loads(event["body"])
    connection_id = event["requestContext"]["connectionId"]
    match order.get("do"):
        case "raise":
            raise ValueError("as told")
        case "leave":
            _sockets.delete_connection(ConnectionId=connection_id)
        case "ring":
            _functions.invoke(
                FunctionName=os.environ["TIDINGS_FUNCTION_PREFIX"] + "follow-push",
                InvocationType="Event",
                Payload=json.dumps({"ring": "main"}),
            )
        case _:
            _sockets.post_to_connection(ConnectionId=connection_id, Data=json.dumps(event))
    return {"statusCode": 200}
