"""The verbs that only one transport knows."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from tests.conformance import values
from tests.conformance.listeners import Ended, SocketListener
from tests.conformance.scene import Scene
from tests.conformance.steps import REACH_S, check_error, step_nothing_more

_BLOCK = rb"id: [^\n]*\nevent: [a-z]+\ndata: [^\n]*\n\n"
_COMMENT = rb":[^\n]*\n\n?|id: [^\n]*\n\n"  # or a block that moves the cursor
_BLOCKS = rb"(?:%b)*(?:retry: [0-9]+\n(?=id))?(?:%b|%b)*" % (_COMMENT, _COMMENT, _BLOCK)
_PER_PAGE = 16  # of some 60 KB: just within a request


def step_well_formed(scene: Scene, name: str) -> None:
    """Every byte so far belongs to blocks of three lines, the first of four, or to comments."""
    listener = scene.sse(name)
    whole = listener.raw[: listener.raw.rfind(b"\n\n") + 2]
    assert whole and b"\r" not in whole
    assert re.fullmatch(_BLOCKS, whole), whole[:500]


def step_begins(scene: Scene, argument: dict[str, Any]) -> None:
    """The bytes of a stream so far begin like a text; `*` is any text.

    Each stream of a stage begins with `retry: 500` (7.4), which the text may leave out.
    """
    found, like = scene.sse(argument["of"]).raw.decode(), argument["like"]
    if not like.startswith("retry"):
        found = found.removeprefix("retry: 500\n")
    assert fnmatchcase(found, f"{like}*"), found


def step_stream_headers(scene: Scene, argument: dict[str, Any]) -> None:
    """Check the headers of the answer to a `listen`."""
    listener = scene.sse(argument["of"])
    for name, expected in argument["headers"].items():
        assert values.matches(expected, listener.response.headers.get(name)), name


def step_comment(scene: Scene, argument: dict[str, Any]) -> None:
    """A comment arrives on a silent stream within `within_s`."""
    listener = scene.sse(argument["of"])
    deadline = time.monotonic() + argument["within_s"]
    while b":\n" not in listener.raw.replace(b"id:", b""):
        assert time.monotonic() < deadline, listener.raw
        time.sleep(0.1)


def step_moved(scene: Scene, argument: dict[str, Any]) -> None:
    """A block of an id alone arrives on a stream within `within_s`; its cursor is that id then.

    With `never` none has arrived.
    """
    listener = scene.sse(argument["of"])
    if argument.get("never"):
        assert not listener.moved
        return
    deadline = time.monotonic() + argument["within_s"]
    while not listener.moved:
        assert time.monotonic() < deadline, listener.raw
        time.sleep(0.1)


def step_connect(scene: Scene, name: str) -> None:
    """A WebSocket without a subscription."""
    scene.keep(name, SocketListener(scene.target.ws_url))


def step_say(scene: Scene, argument: dict[str, Any]) -> None:
    """Send `message` as JSON, `text` as it is, or `binary` as bytes; `what` holds one of them."""
    listener = scene.socket(argument["via"])
    said = argument.get("what", argument)
    if "message" in said:
        message = {"feed": scene.target.feed, **said["message"]}
        listener.say(json.dumps(message))
    else:
        listener.say(said.get("text") or said["binary"].encode())


def step_told(scene: Scene, argument: dict[str, Any]) -> None:
    """The next answer on a WebSocket: `reply` with `fields`, or an error with `code`."""
    listener = scene.socket(argument["via"])
    try:
        answer = listener.answer()
    except Ended:
        assert listener.code in argument.get("or_closed", ()), listener.code
        return
    if "code" in argument:
        check_error(answer["error"], argument)
        return
    expected = {"reply": argument["reply"], **argument.get("fields", {})}
    assert answer.keys() == expected.keys(), answer
    for name, value in expected.items():
        assert values.matches(value, answer[name]), answer


def step_packed(scene: Scene, argument: dict[str, Any]) -> None:
    """At least this many of the messages so far arrived in gzip; exactly none for 0."""
    found = len(scene.socket(argument["of"]).packed)
    assert found >= argument["at_least"] and (not found or argument["at_least"]), found


def step_becomes(scene: Scene, argument: dict[str, Any]) -> None:
    """Asked by `ping` again and again, the connection comes to `state`."""
    listener = scene.socket(argument["via"])
    deadline = time.monotonic() + REACH_S
    seen = ""
    while seen != argument["state"]:
        assert time.monotonic() < deadline, f"still {seen}"
        listener.say('{"action":"ping"}')
        seen = listener.answer()["state"]


def step_serves_on(scene: Scene, _: None) -> None:
    """After whatever happened, posting and listening work as ever."""
    transport = scene.case.transport or scene.target.transports[0]
    scene.open("witness", transport, {})
    step_nothing_more(scene, "witness")


def step_mute(scene: Scene, name: str) -> None:
    """A WebSocket subscribed to the case's type, with a client that stops reading."""
    address = urlsplit(scene.target.ws_url)
    port = address.port or (443 if address.scheme == "wss" else 80)
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect((address.hostname, port))
    deaf = SocketListener(scene.target.ws_url, sock=narrow, max_queue=1)
    message = {"action": "subscribe", "feed": scene.target.feed, "types": [scene.token]}
    deaf.say(json.dumps(message))
    deaf.cursor = deaf.answer()["cursor"]
    scene.keep(name, deaf)
    step_becomes(scene, {"via": name, "state": "live"})


def step_flood(scene: Scene, argument: dict[str, Any]) -> None:
    """Post more than any buffer on the way holds; the listener receives all of it in order."""
    filling = "x" * argument["of_bytes"]
    for at in range(argument["pages"]):
        scene.append([{"insert": f"{at}-{slot}", "data": filling} for slot in range(_PER_PAGE)])
        for slot in range(_PER_PAGE):
            assert scene.heard(argument["heard_by"]).data["id"] == f"{at}-{slot}"


def step_is_cut(scene: Scene, argument: dict[str, Any]) -> None:
    """The connection ends before its client has everything, and its cursor brings the rest."""
    deaf = scene.socket(argument["via"])
    heard = 0
    with contextlib.suppress(Ended):
        while True:
            deaf.next()
            heard += 1
    assert heard < argument["pages"] * _PER_PAGE, "nothing was ever too much for it"
    scene.open("again", "ws", {"from": deaf.cursor, "types": [scene.token]})
    last = f"{argument['pages'] - 1}-{_PER_PAGE - 1}"
    while scene.heard("again").data["id"] != last:
        pass
