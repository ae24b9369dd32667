"""consume: named consumers over HTTP; tests/refusals has the rules of each field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from functions.consume.handler import handle
from functions.ingest.handler import handle as ingest
from tests.functions.cloud import Cloud, answered, event, give_key
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.settings.profiles import close

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
    admin = give_key(Role.ADMIN)
    close(stage().profiles, "main")
    keys = "/feeds/{feed}/keys"
    made = ask("POST", keys, {"roles": ["consume"]}, password=admin)
    assert made[0] == 201, made
    assert ask("GET", keys, password=admin)[0] == 200
    assert ask("POST", f"{keys}/{{id}}/revoke", id=made[1]["id"], password=admin)[0] == 200


def test_what_is_too_large_is_refused(cloud: Cloud) -> None:
    """A body before it is parsed, a list, and a number with more digits than Python reads."""
    log = "/feeds/{feed}/log"
    long = {"from": "0" * 24, "limit": "9" * 5000}
    ids = {"fence": 1, "ids": ["0" * 24] * (limits.ACK_IDS_MAX + 1)}
    for (status, answer), (refused, field, rule) in (
        (act("step", {"why": "x" * limits.REQUEST_BYTES_MAX}), (413, "body", "")),
        (act("ack", ids), (400, "ids", f"at most {limits.ACK_IDS_MAX} ids")),
        (ask("GET", log, query=long), (400, "limit", "from 1 to 1000")),
    ):
        assert (status, answer["error"]["field"]) == (refused, field)
        assert rule in answer["error"]["rule"]
