"""The verbs of feeds that are created and deleted (23); each feed has the case's own name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from tests.conformance.consumer_steps import check_fields
from tests.conformance.listeners import Ended, SocketListener
from tests.conformance.scene import Scene
from tests.conformance.steps import REACH_S, step_heard_all, step_listen

_EVERY_S = 0.2
_SOON_S = 5.0  # a new stream has begun after this time
_KNOWN_S = 90.0  # a change takes effect within 5 s (23.3, 23.8), later on a busy machine


def step_create(scene: Scene, argument: dict[str, Any]) -> None:
    """Put the feed `name`, the case's own by default, with the settings `with`, `if_new` if so."""
    path = _path(scene, argument)
    headers = {"If-None-Match": "*"} if argument.get("if_new") else {}
    scene.answer = scene.http.put(path, json=argument.get("with", {}), headers=headers)
    if scene.answer.status_code == 201:
        scene.stack.callback(_delete_at_end, scene, path)
    check_fields(scene, {"status": 201} | argument)


def _delete_at_end(scene: Scene, path: str) -> None:
    name: str = path.rpartition("/")[2]
    scene.http.delete(path, params={"confirm": name, "force": "true"})


def step_record(scene: Scene, argument: dict[str, Any]) -> None:
    """The record of the feed `has` these fields."""
    scene.answer = scene.http.get(_path(scene, argument))
    check_fields(scene, {"status": 200} | argument)


def step_delete(scene: Scene, argument: dict[str, Any]) -> None:
    """Delete the feed, with the parameters `with` in addition to `confirm`."""
    query = {"confirm": _name(scene, argument)} | argument.get("with", {})
    scene.answer = scene.http.delete(_path(scene, argument), params=query)
    check_fields(scene, {"status": {"$one_of": [200, 202]}} | argument)


def step_removed(scene: Scene, argument: dict[str, Any]) -> None:
    """The removal of the feed ends; its record then `has` these fields."""

    def is_removed() -> bool:
        step_record(scene, {"name": argument.get("name", "")})
        assert scene.answer is not None
        return all(each["state"] == "deleted" for each in scene.answer.json()["removals"])

    _await(scene, is_removed, REACH_S)
    check_fields(scene, {"status": 200} | argument)


def step_feeds(scene: Scene, argument: dict[str, Any]) -> None:
    """The list, with the parameters `with`, has the feeds `names` of the case, in this order."""
    names = [scene.token + each for each in argument["names"]]
    found = [each["feed"] for each in _list(scene, argument)]
    assert found == sorted(found), found
    assert [each for each in found if each.startswith(scene.token)] == names, found


def _list(scene: Scene, argument: dict[str, Any]) -> list[Any]:
    """Return the records of all answers, which have neither settings nor removals."""
    listed: list[Any] = []
    query = dict(argument.get("with", {}))
    while True:
        scene.answer = scene.http.get("/feeds", params=query)
        check_fields(scene, {"status": 200})
        answer = scene.answer.json()
        assert len(answer["feeds"]) <= int(query.get("limit", 100)), answer
        listed += answer["feeds"]
        if answer["next"] is None:
            assert all(not {"settings", "removals"} & {*each} for each in listed), listed
            return listed
        query["after"] = answer["next"]


def step_gone(scene: Scene, argument: dict[str, Any]) -> None:
    """Within the time of 23.8, each of the `requests` below the feed is refused with `code`."""
    for method, below in argument["requests"]:

        def is_gone(method: str = method, below: str = below) -> bool:
            url = f"{scene.target.base_url}{_path(scene, argument)}/{below}"
            headers = {"content-type": "application/json", "accept": "*/*"}
            content = '{"event":"insert","type":"t","id":"a"}' if method == "POST" else None
            scene.answer = scene.http.request(method, url, headers=headers, content=content)
            return scene.answer.status_code == 410

        _await(scene, is_gone, _KNOWN_S)
        check_fields(scene, {"status": 410, "code": argument["code"], "field": "feed"})


def step_ended(scene: Scene, argument: dict[str, Any]) -> None:
    """The listener is disconnected; on a WebSocket an error with `code` comes first."""
    listener = scene.listeners[argument["of"]]
    if isinstance(listener, SocketListener):
        assert listener.answer(_KNOWN_S)["error"]["code"] == argument["code"]
    with contextlib.suppress(Ended):
        raise AssertionError(f"heard {listener.next(_KNOWN_S)}")


def step_known(scene: Scene, argument: dict[str, Any]) -> None:
    """Within the time of 23.3, an operation can be posted to the feed again; it is `op`."""

    def is_known() -> bool:
        scene.answer = scene.http.post(f"{_path(scene, argument)}/ops", json=argument["op"])
        return scene.answer.status_code == 204

    _await(scene, is_known, _KNOWN_S)


def step_resets(scene: Scene, argument: dict[str, Any]) -> None:
    """Within the time of 23.3, listening as by `listen` brings `reset` and then all `objects`.

    Until then, a process may serve the deleted feed while its data are being removed.
    """

    def is_reset() -> bool:
        try:
            step_listen(scene, argument)
            if scene.listeners[argument["as"]].next(within_s=_SOON_S).name != "reset":
                return False
            step_heard_all(scene, {"of": argument["as"], "objects": argument["objects"]})
            return True
        except AssertionError:  # the process does not know the new feed yet
            return False

    _await(scene, is_reset, _KNOWN_S)


def _await(scene: Scene, is_true: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        assert scene.answer is not None
        assert time.monotonic() < deadline, f"{scene.answer.status_code} {scene.answer.text}"
        time.sleep(_EVERY_S)


def _name(scene: Scene, argument: dict[str, Any]) -> str:
    return f"{scene.token}{argument.get('name', '')}"


def _path(scene: Scene, argument: dict[str, Any]) -> str:
    return f"/feeds/{_name(scene, argument)}"
