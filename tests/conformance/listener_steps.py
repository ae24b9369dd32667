"""The verbs of listeners (13): registrations and items over a WebSocket, publishing over HTTP."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.conformance.listeners import PATIENCE_S
from tests.conformance.scene import Scene
from tests.conformance.steps import REACH_S

_FENCE = "fence"


def step_registers(scene: Scene, argument: dict[str, Any]) -> None:
    """Connect and register: for `resource` and `subs`, or with `message`, or `text` as it is.

    `query` is appended to the address, `version` is the header `Accept-Version`.
    """
    query = argument.get("query", f"?changefeed={scene.target.feed}")
    version = argument.get("version")
    socket = scene.stack.enter_context(
        connect(
            scene.target.ws_url + query,
            additional_headers={"Accept-Version": version} if version else {},
            open_timeout=PATIENCE_S,
            ping_interval=None,
        )
    )
    message = argument.get("message") or {
        "instance": argument.get("instance", f"{scene.token}-{argument['as']}"),
        "service": "s",
        "changeKind": {"resource": argument.get("resource"), "subResources": argument.get("subs")},
    }
    socket.send(argument.get("text") or json.dumps(message))
    scene.names[argument["as"]] = socket
    if "text" not in argument and "message" not in argument:
        scene.names[f"{argument['as']} said"] = _text(socket)  # it is registered from here on


def step_says(scene: Scene, argument: dict[str, Any]) -> None:
    """The answer to a registration, or else the next message: `json`, `text` or `like`."""
    said = scene.names.pop(f"{argument['by']} said", None) or _own(scene, argument["by"])
    if "json" in argument:
        assert json.loads(said) == argument["json"], said
    if "text" in argument:
        assert said == argument["text"]
    if "like" in argument:
        assert re.fullmatch(argument["like"], said), said


def step_tells(scene: Scene, argument: dict[str, Any]) -> None:
    _socket(scene, argument["by"]).send(argument["text"])


def step_is_closed(scene: Scene, name: str) -> None:
    """Without another message for this case."""
    try:
        text = _own(scene, name)
    except ConnectionClosed:
        return
    raise AssertionError(f"heard {text}")


def step_publish(scene: Scene, items: list[dict[str, Any]]) -> None:
    """Publish items that must be accepted."""
    answer = scene.http.post(f"/feeds/{scene.target.feed}/changefeeds", json=items)
    assert answer.status_code == 204, answer.text


def step_brings(scene: Scene, argument: dict[str, Any]) -> None:
    """The next items of this case are exactly `items`, or have the ids `ids`."""
    for wanted in argument.get("items", ()):
        found = _item(scene, argument["to"])
        assert re.fullmatch(r"\d{13}", found.pop("published")), found
        assert found == wanted
    for name in argument.get("ids", ()):
        assert _item(scene, argument["to"])["changedResourceId"] == name


def step_brings_no_more(scene: Scene, argument: str | dict[str, Any]) -> None:
    """A fence published now is the very next item."""
    wish: dict[str, Any] = {"to": argument} if isinstance(argument, str) else argument
    kind = {"resource": wish.get("resource", "vm"), "subResources": [wish.get("sub", "nic")]}
    fence = f"{scene.token}-{_FENCE}-{wish['to']}"
    step_publish(scene, [{"changeKind": kind, "changedResourceId": fence}])
    assert _item(scene, wish["to"])["changedResourceId"] == fence


def step_objects(scene: Scene, argument: dict[str, Any]) -> None:
    """Sooner or later what lives of the case's type is exactly `ids`."""
    deadline = time.monotonic() + REACH_S
    while (found := _objects(scene)) != argument["ids"]:
        assert time.monotonic() < deadline, found


def _objects(scene: Scene) -> list[str]:
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        query = {"type": scene.token, "after": after}
        answer = scene.http.get(f"/feeds/{scene.target.feed}/objects", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert all("event" not in each for each in page["objects"]), page
        found += [each["id"] for each in page["objects"]]
        after = page["next"]
    return sorted(found)


def _socket(scene: Scene, name: str) -> ClientConnection:
    socket = scene.names[name]
    assert isinstance(socket, ClientConnection)
    return socket


def _text(socket: ClientConnection) -> str:
    return str(socket.recv(timeout=REACH_S))


def _own(scene: Scene, name: str) -> str:
    """The next message but for others' items: one of the case before may still be on its way."""
    while True:
        text = _text(_socket(scene, name))
        if "changedResourceId" not in text or scene.token in text:
            return text


def _item(scene: Scene, name: str) -> dict[str, Any]:
    """Return the next item of this case; others may use the feed, and a fence is for one."""
    while True:
        found: dict[str, Any] = json.loads(_text(_socket(scene, name)))
        told = str(found.get("changedResourceId", ""))
        others_fence = f"-{_FENCE}-" in told and not told.endswith(f"-{_FENCE}-{name}")
        if scene.token in told and not others_fence:
            return found
