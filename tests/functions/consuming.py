"""Asking the function `consume`, and all it may be asked."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from functions.consume.handler import handle
from functions.ingest.handler import handle as ingest
from tests.functions.cloud import event

Asked = set[tuple[str, str]]
CONSUMER = "/feeds/{feed}/consumers/{name}"
ACTION = f"{CONSUMER}/{{action}}"


def post(*kinds: str) -> list[str]:
    """A message of each type, a page each; their ids."""
    ids: list[str] = []
    for number, kind in enumerate(kinds):
        body = json.dumps({"event": "update", "type": kind, "id": str(number)})
        sent = event("http_post", body=body, isBase64Encoded=False)
        answer = ingest({**sent, "headers": {**sent["headers"], "prefer": REPRESENT}}, None)
        ids += json.loads(answer["body"])["ids"]
    return ids


REPRESENT = "return=representation"


def ask(
    method: str,
    route: str,
    body: object = None,
    *,
    query: Mapping[str, str] | None = None,
    password: str = "",
    **parameters: str,
) -> tuple[int, dict[str, Any]]:
    """Status and body of one answer."""
    credentials = base64.b64encode(f"ann:{password}".encode()).decode()
    answer = handle(
        event(
            "http_get_status",
            routeKey=f"{method} {route}",
            headers={"authorization": f"Basic {credentials}"},
            body="" if body is None else json.dumps(body),
            pathParameters={"feed": "main", "name": "index", **parameters},
            queryStringParameters=query or {},
        ),
        None,
    )
    return answer["statusCode"], json.loads(answer["body"])


def act(action: str, body: object, **more: Any) -> tuple[int, dict[str, Any]]:
    return ask("POST", ACTION, body, action=action, **more)


def consuming(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    """Everything that it writes and reads."""
    ids = post("a", "a", "a")
    asked = watch()
    why = {"why": "a test"}
    assert ask("PUT", CONSUMER)[0] == 201
    fence = act("lease", {"worker": "w"})[1]["fence"]
    assert act("ack", {"fence": fence, "ids": ids[:1]})[0] == 200
    assert act("park", why)[0] == 200
    assert act("drop", {**why, "id": "all"})[0] == 200
    for below in ("", "/parked", "/notes"):
        assert ask("GET", CONSUMER + below)[0] == 200
    assert ask("GET", "/feeds/{feed}/log")[0] == 200
    assert ask("DELETE", CONSUMER, query=why)[0] == 200
    return asked
