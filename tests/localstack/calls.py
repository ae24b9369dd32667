"""Post to a feed through Lambda's API, read its tables as an operator's commands do, and wait.

The HTTP API is not in LocalStack's open edition. The events are the twin's, those of an HTTP API.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import boto3

from tests.localstack.stage import STAGE
from tests.twin import http_gateway
from tests.twin.http_gateway import HttpRequest, HttpResponse
from tidings.core.model.operations import event_of, parse_line
from tidings.sync.feed import DynamoDBFeed

Found = TypeVar("Found")

SECONDS = 120  # a mapping delivers within one, a schedule within sixty; a busy machine needs more
_EVERY_S = 0.5
_HEADERS = (("content-type", "application/json"), ("prefer", "return=representation"))


def op(event: str, id: str, **more: str) -> dict[str, Any]:
    """Return an operation on a video."""
    return {"event": event, "type": "video", "id": id, **more}


def request(feed: str, said: object) -> HttpResponse:
    """Return the answer to a POST of *said* to the operations of *feed*."""
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
    event = http_gateway.encode_event(asked, now_ms=0, request_id="localstack")
    answer = boto3.client("lambda").invoke(
        FunctionName=f"tidings-{STAGE}-ingest", Payload=json.dumps(event).encode()
    )
    body = answer["Payload"].read()
    assert "FunctionError" not in answer, body
    return http_gateway.decode_answer(body)


def post(*operations: dict[str, Any], feed: str = "main") -> list[str]:
    """Post operations and return their ids."""
    answer = request(feed, operations)
    assert answer.status == 200, answer.body
    ids: list[str] = json.loads(answer.body)["ids"]
    return ids


def eventually(look: Callable[[], Found], what: str, seconds: float = SECONDS) -> Found:
    """Return the result of *look*, once it is true."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(_EVERY_S)
    return found


def told(place: DynamoDBFeed) -> list[str]:
    """Return the operations of the log in its order: `insert x`."""
    pages = place.stores.log.read(place.feed, 0)
    return [f"{event_of(line)} {parse_line(line).id}" for page in pages for line in page.lines]


def followed(place: DynamoDBFeed) -> bool:
    """Return True if every follower that a change wakes is at the end of the log."""
    found = place.stores.followers.checkpoints(place.feed)
    head = place.stores.log.head(place.feed)
    return {"state", "push"} <= set(found) and min(found["state"], found["push"]) == head


def living(place: DynamoDBFeed, *keys: str) -> set[str]:
    """Return those of the objects *keys* (`video/x`) that the state has as not deleted."""
    rows = place.stores.state.find(place.feed, keys)
    return {row.key for row in rows if not row.deleted}
