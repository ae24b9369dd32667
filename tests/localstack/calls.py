"""
What clients send, through Lambda's API: the HTTP API is not in LocalStack's open edition.

The events are the twin's, which are those of an HTTP API.
"""

from __future__ import annotations

import json
from typing import Any

import boto3
from tidings.twin.gateway import http_events
from tidings.twin.gateway.http_events import HttpRequest, HttpResponse

from tests.localstack.stage import STAGE

_HEADERS = (("content-type", "application/json"), ("prefer", "return=representation"))


def op(event: str, id: str, **more: str) -> dict[str, Any]:
    """An operation on a video."""
    return {"event": event, "type": "video", "id": id, **more}


def request(feed: str, said: object) -> HttpResponse:
    """The answer to a POST of *said* to the operations of *feed*."""
    asked = HttpRequest(
        method="POST",
        path=f"/feeds/{feed}/ops",
        query="",
        headers=_HEADERS,
        body=json.dumps(said).encode(),
        source_ip="127.0.0.1",
        route="POST /feeds/{feed}/ops",
        parameters={"feed": feed},
    )
    event = http_events.encode(asked, now_ms=0, request_id="localstack")
    answer = boto3.client("lambda").invoke(
        FunctionName=f"tidings-{STAGE}-ingest", Payload=json.dumps(event).encode()
    )
    body = answer["Payload"].read()
    assert "FunctionError" not in answer, body
    return http_events.decode(body)


def post(*operations: dict[str, Any], feed: str = "main") -> list[str]:
    """The ids that they get."""
    answer = request(feed, operations)
    assert answer.status == 200, answer.body
    ids: list[str] = json.loads(answer.body)["ids"]
    return ids
