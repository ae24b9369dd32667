"""The verbs of named consumers (14)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from tests.conformance import values
from tests.conformance.scene import FILTERS, Scene
from tests.conformance.steps import step_answer

_WHY = "conformance"
_OPERATORS = ("mark", "step", "park", "retry", "drop", "pause", "resume")


def step_consumer(scene: Scene, argument: dict[str, Any]) -> None:
    """Register one of the case's own name, or that and `name`, for messages of the case's own type
    unless `types` says otherwise; it goes when the case ends. With `only_new`, it must not exist.
    """
    sent = {"types": [scene.token]} | {
        key: argument[key] for key in ("from", *FILTERS, "erasures") if key in argument
    }
    path = _path(scene, argument)
    headers = {"If-None-Match": "*"} if argument.get("only_new") else {}
    scene.answer = scene.http.put(path, json=sent, headers=headers)
    if scene.answer.status_code == 201:
        scene.stack.callback(scene.http.delete, path, params={"why": _WHY, "by": _WHY})
    check_fields(scene, {"status": 201} | argument)


def step_consumer_says(scene: Scene, argument: dict[str, Any]) -> None:
    """`does` one of the actions with the fields `with`; its answer `has` these, and stays as `as`.

    The author and the reason are added if an operator would state them; a refusal is checked as by
    `answer`.
    """
    does, sent = argument["does"], dict(argument.get("with", {}))
    if does in _OPERATORS:
        sent = {"why": _WHY, "by": _WHY} | sent
    scene.answer = scene.http.post(f"{_path(scene, argument)}/{does}", json=sent)
    check_fields(scene, {"status": 200} | argument)


def step_consumer_shows(scene: Scene, argument: dict[str, Any]) -> None:
    """Check that the consumer's document, or the one at the path `below` it, `has` these fields."""
    below = f"/{argument['below']}" if "below" in argument else ""
    scene.answer = scene.http.get(_path(scene, argument) + below)
    check_fields(scene, {"status": 200} | argument)


def step_consumer_goes(scene: Scene, argument: dict[str, Any]) -> None:
    """It is deleted, with the parameters `with`."""
    scene.answer = scene.http.delete(_path(scene, argument), params=argument.get("with", {}))
    check_fields(scene, {"status": 200} | argument)


def step_log(scene: Scene, argument: dict[str, Any]) -> None:
    """The log of the feed, with the parameters `with`, `has` these."""
    url = f"/feeds/{scene.target.feed}/log"
    scene.answer = scene.http.get(url, params=argument.get("with", {}))
    check_fields(scene, {"status": 200} | argument)


def _path(scene: Scene, argument: dict[str, Any]) -> str:
    name = scene.token + argument.get("name", "")
    return f"/feeds/{scene.target.feed}/consumers/{name}"


def check_fields(scene: Scene, argument: dict[str, Any]) -> None:
    step_answer(scene, argument)
    assert scene.answer is not None
    found = scene.answer.json()
    _has(argument.get("has", {}), found, scene.answer.text)
    if "as" in argument:
        scene.names[argument["as"]] = json.loads(
            scene.answer.text, object_hook=lambda fields: SimpleNamespace(**fields)
        )


def _has(expected: Any, found: Any, text: str) -> None:
    """Compare every field named; lists item by item."""
    if isinstance(expected, dict) and isinstance(found, dict) and not values.is_matcher(expected):
        for name, item in expected.items():
            assert name in found, f"{name}: {text}"
            _has(item, found[name], text)
    elif isinstance(expected, list) and isinstance(found, list):
        assert len(expected) == len(found), text
        for one, other in zip(expected, found, strict=True):
            _has(one, other, text)
    else:
        assert values.matches(expected, found), f"{expected}: {text}"
