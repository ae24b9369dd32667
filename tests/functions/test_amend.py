"""amend: the corrections of a sync over HTTP, and the refused ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.amend.handler import handle as amend
from tests.functions.cloud import Cloud, event
from tests.functions.test_correct import planned
from tests.unit.core.scene import line
from tests.unit.core.sync.test_apply import correct
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.state.rows import Row
from tidings.core.sync import corrections
from tidings.core.sync.corrections import Correction, Position

NDJSON = "application/x-ndjson"


def ask(
    *wanted: Correction, body: str | None = None, through: str = "0", kind: str = NDJSON
) -> tuple[int, dict[str, Any]]:
    """Status and body of one answer."""
    text = "".join(f"{corrections.encode(each)}\n" for each in wanted)
    sent = event(
        "http_post",
        routeKey="POST /feeds/{feed}/corrections",
        pathParameters={"feed": "main"},
        queryStringParameters={"through": through},
        headers={"content-type": kind},
        isBase64Encoded=False,
        body=text if body is None else body,
    )
    answer = amend(sent, None)
    return answer["statusCode"], json.loads(answer["body"])


def look(body: object) -> tuple[int, dict[str, Any]]:
    """Return status and body of one answer to a request for rows."""
    sent = event(
        "http_post",
        routeKey="POST /feeds/{feed}/corrections/rows",
        pathParameters={"feed": "main"},
        headers={"content-type": "application/json"},
        isBase64Encoded=False,
        body=json.dumps(body),
    )
    answer = amend(sent, None)
    return answer["statusCode"], json.loads(answer["body"])


def done(**counts: Any) -> dict[str, Any]:
    nothing = {"applied": 0, "moved": 0, "done": 0, "behind": 0, "complete": True}
    return nothing | counts


def test_a_request_is_applied_and_may_be_repeated(cloud: Cloud) -> None:
    """Applied ones are found as done; moved objects stay; an empty request is fine."""
    assert ask(*planned("a", "b")) == (200, done(applied=2, behind=2))
    assert ask(*planned("a", "b")) == (200, done(done=2, behind=2))
    assert ask(correct("a", Position(9, 9), "update")) == (200, done(moved=1, behind=1))
    assert ask() == (200, done())
    assert len(stage().stores.log.read("main", 0)) == 1


def test_a_request_yields_before_a_gateway_gives_up(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer contains the progress, so that the rest can be sent again."""
    monkeypatch.setattr(limits, "AMEND_RUN_MS", 0)
    assert ask(*planned("a")) == (200, done(complete=False))
    assert stage().stores.log.read("main", 0) == []
    assert limits.AMEND_TIMEOUT_S < 30


def test_a_plan_that_is_too_old_is_gone(cloud: Cloud) -> None:
    """A new one has to be made."""
    stage().stores.log.raise_floor("main", 9)
    answered, body = ask(*planned("a"), through="5")
    assert (answered, body["error"]["code"]) == (410, "plan_too_old")


def test_rows_of_some_objects_are_told(cloud: Cloud) -> None:
    """With the positions that corrections need; objects without a row are omitted."""
    row = Row(
        key="video/b", page=3, slot=1, at_ms=5_000, line=line("b", "delete"), expires_ms=9_000
    )
    stage().stores.state.write("main", [row, row._replace(key="video/a", line=line("a"))])
    answered, body = look({"keys": ["video/b", "video/none"]})
    assert (answered, body["state"], body["count"]) == (200, 0, 2)
    assert [Row(**each) for each in body["rows"]] == [row]


def test_a_reply_of_rows_is_bounded(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """It contains the number of keys looked up; the rest is requested again."""
    keys = [f"video/{number}" for number in range(limits.LOOKUP_KEYS + 1)]
    rows = [Row(key, 3, 1, 5_000, line(key.partition("/")[2])) for key in keys]
    stage().stores.state.write("main", rows)
    monkeypatch.setattr(limits, "BATCH_BYTES", 1)
    _, body = look({"keys": keys})
    assert body["count"] == len(body["rows"]) == limits.LOOKUP_KEYS
    _, body = look({"keys": keys[body["count"] :]})
    assert [each["key"] for each in body["rows"]] == keys[-1:]
    assert body["count"] == 1


def test_what_is_too_large_is_refused(cloud: Cloud) -> None:
    """With its field, and nothing is written."""
    for (status, answer), refused in (
        (ask(body="x" * (limits.REQUEST_BYTES_MAX + 1)), (413, "body")),
        (ask(through="9" * 5_000), (400, "through")),
        (look({"keys": ["a"] * (limits.LOOKUP_KEYS_MAX + 1)}), (400, "keys")),
    ):
        assert (status, answer["error"]["field"]) == refused
    assert stage().stores.log.head("main") == 0
