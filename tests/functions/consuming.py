"""Asking the function `consume`, and all it may be asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from functions.consume.handler import handle
from functions.ingest.handler import handle as ingest
from tests.functions.cloud import answered, event

Requests = set[tuple[str, str]]
CONSUMER = "/feeds/{feed}/consumers/{name}"
ACTION = f"{CONSUMER}/{{action}}"
REPRESENT = {"prefer": "return=representation"}


def post(*kinds: str) -> list[str]:
    """Post a message of each type, a page each; return their ids."""
    ids: list[str] = []
    for number, kind in enumerate(kinds):
        body = json.dumps({"event": "update", "type": kind, "id": str(number)})
        answer = ingest(event("http_post", body=body, more=REPRESENT), None)
        ids += json.loads(answer["body"])["ids"]
    return ids


def ask(method: str, route: str, body: object = None, **more: Any) -> tuple[int, dict[str, Any]]:
    """Status and body of one answer about the consumer `index`."""
    return answered(handle, f"{method} {route}", body, **{"name": "index", **more})


def act(action: str, body: object, **more: Any) -> tuple[int, dict[str, Any]]:
    return ask("POST", ACTION, body, action=action, **more)


def consuming(monkeypatch: pytest.MonkeyPatch, start_recording: Callable[[], Requests]) -> None:
    """Run everything that the function writes and reads."""
    ids = post("a", "a", "a")
    start_recording()
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
