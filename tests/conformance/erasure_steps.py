"""The verbs of erasures (22)."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.consumer_steps import check_fields
from tests.conformance.scene import Scene
from tests.conformance.steps import REACH_S

_REASON = "conformance"


def step_erase(scene: Scene, argument: dict[str, Any]) -> None:
    """Request the erasure of the object `id` of the case's own type, with the fields `with`.

    Its report `has` these, and stays as `as`; a refusal is checked as by `answer`.
    """
    sent = {"type": scene.token, "id": argument.get("id", "a"), "reason": _REASON}
    sent |= argument.get("with", {})
    body = {name: value for name, value in sent.items() if name not in argument.get("without", ())}
    headers = {"Idempotency-Key": argument["key"]} if "key" in argument else {}
    scene.answer = scene.http.post(_path(scene), json=body, headers=headers)
    check_fields(scene, {"status": 202} | argument)


def step_report(scene: Scene, argument: dict[str, Any]) -> None:
    """The report `of` an erasure `has` these fields."""
    scene.answer = scene.http.get(f"{_path(scene)}/{argument['of']}")
    check_fields(scene, {"status": 200} | argument)


def step_erased(scene: Scene, argument: dict[str, Any]) -> None:
    """The erasure `of` ends within `REACH_S`; its report `has` these fields."""
    deadline = time.monotonic() + REACH_S
    while True:
        step_report(scene, {"of": argument["of"]})
        assert scene.answer is not None
        if scene.answer.json()["state"] != "pending":
            check_fields(scene, {"status": 200} | argument)
            return
        assert time.monotonic() < deadline, scene.answer.text
        time.sleep(0.1)


def step_erasures(scene: Scene, argument: dict[str, Any]) -> None:
    """The list `after` an erasure soon has the `ids`, in this order, and not the erasure itself."""
    after = argument.get("after")
    deadline = time.monotonic() + REACH_S
    while True:
        listed = [each["id"] for each in _list(scene, after)]
        found = [each for each in listed if each in argument["ids"]]
        if found == argument["ids"]:
            break
        assert time.monotonic() < deadline, listed
        time.sleep(0.1)
    assert after not in listed, listed


def _list(scene: Scene, after: str | None) -> list[Any]:
    """Return the erasures of all answers, which have no locations."""
    listed: list[Any] = []
    while True:
        query = {} if after is None else {"after": after}
        scene.answer = scene.http.get(_path(scene), params=query)
        check_fields(scene, {"status": 200})
        answer = scene.answer.json()
        listed += answer["erasures"]
        after = answer["next"]
        if after is None:
            assert all("locations" not in each for each in listed), listed
            return listed


def _path(scene: Scene) -> str:
    return f"/feeds/{scene.target.feed}/erasures"


def step_located(scene: Scene, argument: dict[str, Any]) -> None:
    """Each location of the `report` has its fields, and those named `done` are done."""
    found = {each.name: each for each in argument["report"].locations}
    for each in found.values():
        assert each.status in ("done", "pending", "outside") and each.note, each
        assert each.until is None or each.until.endswith("Z"), each
    assert {name for name in argument["done"] if found[name].status == "done"} == {
        *argument["done"]
    }
