"""The verbs of lists of changes (12)."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.conformance import values
from tests.conformance.listeners import PATIENCE_S
from tests.conformance.scene import Scene

_ID_MAX = 2**53


def step_change(scene: Scene, argument: dict[str, Any]) -> None:
    """Post a change that must be accepted; its id is kept under `as`, its event id as `event`."""
    body = {"data": argument.get("data"), "tags": argument.get("tags", [])}
    answer = scene.http.post(f"/feeds/{scene.target.feed}/changes", json=body)
    assert answer.status_code == 200, answer.text
    number = answer.json()["_id"]
    assert 0 < number < _ID_MAX, number
    scene.names[argument.get("as", "change")] = number
    scene.names["event"] = f"{0:08x}{number >> 10:010x}{number & 1023:06x}"


def step_lists(scene: Scene, argument: dict[str, Any]) -> None:
    """Check the answer to a `query`: `changes`, `at_end`, `next_from` (the least `next`)."""
    _check(_list(scene, argument["query"]), argument)


def step_asks(scene: Scene, argument: dict[str, Any]) -> None:
    """Send a `query` that waits, while the following steps run."""
    scene.names[argument["as"]] = scene.beside(lambda: _list(scene, argument["query"]))


def step_is_answered(scene: Scene, argument: dict[str, Any]) -> None:
    """Check the answer to an earlier `asks`, as for `lists`."""
    _check(scene.names[argument["of"]](), argument)


def _list(scene: Scene, query: str) -> dict[str, Any]:
    url = f"{scene.target.stream_url}/feeds/{scene.target.feed}/changes?{query}"
    answer = httpx.get(url, timeout=PATIENCE_S * 3)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _check(found: dict[str, Any], argument: dict[str, Any]) -> None:
    changes = found["changes"]
    assert len(changes) == len(argument["changes"]), found
    ids = [change["_id"] for change in changes]
    assert ids == sorted(set(ids)), ids
    for wanted, change in zip(argument["changes"], changes, strict=True):
        _check_change(wanted, change)
    if "at_end" in argument:
        assert found["atEnd"] == argument["at_end"], found
    if "next_from" in argument:
        assert found["next"] >= argument["next_from"], found


def _check_change(wanted: dict[str, Any], change: dict[str, Any]) -> None:
    """Compare `id`, `tags` and `data` if they are given; in an object `data`, the given fields."""
    assert wanted.get("id", change["_id"]) == change["_id"], change
    assert wanted.get("tags", change.get("tags")) == change.get("tags"), change
    data = wanted.get("data", change["data"])
    if isinstance(data, dict):
        for name, value in data.items():
            assert values.matches(value, change["data"].get(name)), json.dumps(change)
    else:
        assert data == change["data"], change
