"""The actions and checks of a case: each verb of `cases/*.yaml` is a function `step_<verb>` here
or in `transport_steps`.

Posting stores an answer that `answer` checks; listeners keep a name. Nothing waits for
a time: to show that nothing more comes, a fence is posted and must be the next event.
"""

from __future__ import annotations

import json
import time
from typing import Any

from tests.conformance import values
from tests.conformance.listeners import ReceivedEvent, Silence
from tests.conformance.scene import FILTERS, Scene
from tidings.core.model.events import SWITCHES

FENCE = "fence"
REACH_S = 180.0  # a follower on a schedule runs within a minute
SILENT_S = 0.5  # after a witness has received the same page, a missing event is not sent
_OPTIONS = (*FILTERS, *SWITCHES, "feed", "from", "path", "format", "accept", "cursors")


def step_append(scene: Scene, argument: dict[str, Any]) -> None:
    """Post operations that must be accepted; their ids are kept under `as`."""
    ids = scene.append(argument["ops"])
    if "as" in argument:
        scene.names[argument["as"]] = ids


def step_post(scene: Scene, argument: dict[str, Any]) -> None:
    """Post and keep the answer. `ops`/`op` are short forms, `text` goes as it is, `lines` is
    NDJSON."""
    kind, body = "application/json", argument.get("text", "")
    if "ops" in argument:
        body = _wire([values.operation(short, scene.token) for short in argument["ops"]])
    elif "op" in argument:
        body = _wire(values.operation(argument["op"], scene.token))
    elif "lines" in argument:
        kind = "application/x-ndjson"
        shorts = [values.operation(short, scene.token) for short in argument["lines"]]
        body = "".join(short if isinstance(short, str) else _wire(short) for short in shorts)
    headers = {"content-type": kind, **argument.get("headers", {})}
    wire = {name: value for name, value in headers.items() if value is not None}
    path = argument.get("path", scene.target.ops_path)
    content = body.encode("utf-8", "surrogatepass")
    scene.answer = scene.http.post(path, content=content, headers=wire)


def _wire(value: Any) -> str:
    return json.dumps(value) + "\n"


def step_request(scene: Scene, argument: dict[str, Any]) -> None:
    """Any request that is answered at once, with `text` as its body; a GET goes where streams are,
    unless `at` is `api`. Headers of the answer are kept under the names that `keep` gives them.
    """
    streams = argument["method"] == "GET" and argument.get("at") != "api"
    base = scene.target.stream_url if streams else scene.target.base_url
    headers = argument.get("headers", {})
    scene.answer = scene.http.request(
        argument["method"], base + argument["path"], headers=headers, content=argument.get("text")
    )
    for name, header in argument.get("keep", {}).items():
        scene.names[name] = scene.answer.headers[header]


def step_answer(scene: Scene, argument: dict[str, Any]) -> None:
    """The last answer: `status`, `code`, `field`, `says`, `body`, `headers`, `ids` (how many)."""
    assert scene.answer is not None
    status, text = scene.answer.status_code, scene.answer.text
    assert values.matches(argument["status"], status), f"{status} {text}"
    if "body" in argument:
        assert values.matches(argument["body"], text), text
    if "ids" in argument:
        ids = scene.answer.json()["ids"]
        assert len(ids) == argument["ids"], ids
        assert all(values.matches({"$like": "[0-9a-f]{24}"}, found) for found in ids), ids
        assert ids == sorted(ids), ids
    if "same_ids" in argument:
        assert scene.answer.json() == {"ids": argument["same_ids"]}
    for name, expected in argument.get("headers", {}).items():
        assert values.matches(expected, scene.answer.headers.get(name)), scene.answer.headers
    if "code" in argument:
        check_error(scene.answer.json()["error"], argument)


def check_error(error: dict[str, Any], argument: dict[str, Any]) -> None:
    assert error["code"] == argument["code"], error
    assert error.keys() >= {"code", "message", "field", "value", "rule"}, error
    if "field" in argument:
        assert error["field"] == argument["field"], error
    for fragment in argument.get("says", ()):
        assert fragment in error["message"], error
    assert len(json.dumps(error)) < 2000, "an error must not repeat everything that was sent"


def step_listen(scene: Scene, argument: dict[str, Any]) -> None:
    """Listen from `from` on with `types` and `parents`, on the case's transport or `over`."""
    transport = argument.get("over") or scene.case.transport or scene.target.transports[0]
    scene.open(argument["as"], transport, _wish(argument))


def _wish(argument: dict[str, Any]) -> dict[str, Any]:
    whole = {**argument, **argument.get("filter", {})}
    return {key: whole[key] for key in _OPTIONS if key in whole}


def step_refused(scene: Scene, argument: dict[str, Any]) -> None:
    """Listening is refused with `code`; a WebSocket stays open and answers the next message."""
    if scene.case.transport == "sse":
        response = scene.get(_wish(argument)).response
        assert response.status_code == 400, response.text
        check_error(response.json()["error"], argument)
        return
    listener, answer = scene.subscribe(_wish(argument))
    check_error(answer["error"], argument)
    listener.say('{"action":"ping"}')
    assert listener.answer() == {"reply": "pong", "state": "open"}


def step_hears(scene: Scene, argument: dict[str, Any]) -> None:
    """The next events `of` a listener are exactly `events`."""
    for expected in argument["events"]:
        heard = scene.heard(argument["of"])
        if isinstance(expected, str):
            assert (heard.name, heard.data) == (expected, {}), heard
            continue
        _check_event(scene, expected, heard)


def _check_event(scene: Scene, expected: dict[str, Any], heard: ReceivedEvent) -> None:
    fields = values.operation(expected, scene.token)
    assert heard.name == fields.pop("event"), heard
    event_id = fields.pop("event_id", None)
    assert event_id is None or heard.id == event_id, heard
    only, trace = fields.pop("only", None), fields.pop("trace", None)
    assert trace is None or heard.trace == trace, heard
    for name, value in fields.items():
        assert values.matches(value, heard.data.get(name)), (name, value, heard)
    assert only is None or list(heard.data) == only, heard


def step_hears_named(scene: Scene, argument: dict[str, Any]) -> None:
    """The next events `of` a listener have these names, whatever their data is."""
    for name in argument["names"]:
        assert scene.heard(argument["of"]).name == name


def step_hears_fields(scene: Scene, argument: dict[str, Any]) -> None:
    """The next operations `of` a listener have data with these fields, `a.b` within another."""
    for expected in argument["events"]:
        while (heard := scene.heard(argument["of"])).name in ("reset", "live"):
            pass
        for path, value in expected.items():
            found: Any = heard.data
            for name in path.split("."):
                found = found.get(name)
            assert values.matches(value, found), (path, value, heard)


def step_nothing_more(scene: Scene, argument: str | dict[str, Any]) -> None:
    """A fence posted now is the very next event `of` the listener; `fence` fits its filter."""
    wish: dict[str, Any] = {"of": argument} if isinstance(argument, str) else argument
    fence = {"insert": FENCE, **wish.get("fence", {})}
    scene.append([fence])
    step_hears(scene, {"of": wish["of"], "events": [fence]})


def step_hears_ids(scene: Scene, argument: dict[str, Any]) -> None:
    """The next events are of exactly these objects; `fence` null: nothing can match."""
    for wanted in argument["ids"]:
        assert scene.heard(argument["of"]).data["id"] == str(wanted)
    if argument["fence"] is None:
        step_silent(scene, argument)
    else:
        step_nothing_more(scene, argument)


def step_silent(scene: Scene, argument: dict[str, Any]) -> None:
    """No event arrives although a witness receives an operation posted after all others."""
    transport = scene.case.transport or scene.target.transports[0]
    scene.open("witness", transport, {})
    step_nothing_more(scene, "witness")
    try:
        heard = scene.listeners[argument["of"]].next(within_s=SILENT_S)
    except Silence:
        return
    raise AssertionError(f"heard {heard}")


def step_ends_live(scene: Scene, argument: dict[str, Any]) -> None:
    """Up to and with `live`, without `reset`: rows, then the log, which is exactly `log`."""
    events = list(scene.until_live(argument["of"]))
    log = [heard for heard in events if not heard.is_row]
    assert events[len(events) - len(log) :] == log, events
    assert len(log) == len(argument["log"]), events
    for expected, heard in zip(argument["log"], log, strict=True):
        _check_event(scene, expected, heard)


def step_finds(scene: Scene, argument: dict[str, Any]) -> None:
    """Sooner or later `event` comes, in a copy or from the log."""
    expected = values.operation(argument["event"], scene.token)
    while scene.heard(argument["of"]).data.get("id") != expected["id"]:
        pass


def step_heard_all(scene: Scene, argument: dict[str, Any]) -> None:
    """Up to and with `live`: the fold is exactly `objects`; `reset` first or not at all."""
    events = list(scene.until_live(argument["of"]))
    started = bool(events) and events[0].name == "reset"
    assert started == argument.get("reset", False), events[:1]
    objects: dict[tuple[str, str], ReceivedEvent] = {}
    for heard in events[int(started) :]:
        key = (heard.data["type"], heard.data["id"])
        if heard.name == "delete":
            objects.pop(key, None)
        else:
            objects[key] = heard
    expected = [values.operation(short, scene.token) for short in argument["objects"]]
    assert sorted(objects) == sorted((short["type"], short["id"]) for short in expected)
    for short in argument["objects"]:
        wanted = values.operation(short, scene.token)
        wanted["event"] = objects[wanted["type"], wanted["id"]].name
        _check_event(scene, wanted, objects[wanted["type"], wanted["id"]])


def step_copied(scene: Scene, argument: dict[str, Any]) -> None:
    """Up to and with `live`: exactly `rows`, in any order, each with the cursor of a copy."""
    events = [heard for heard in scene.until_live(argument["of"]) if heard.name != "reset"]
    assert all(heard.is_row for heard in events), events
    found = sorted(events, key=lambda heard: str(heard.data["id"]))
    assert len(found) == len(argument["rows"]), events
    for expected, heard in zip(argument["rows"], found, strict=True):
        _check_event(scene, expected, heard)


def step_projected(scene: Scene, objects: list[str]) -> None:
    """Wait until the state holds these objects of the case's type: a copy brings their rows."""
    deadline = time.monotonic() + REACH_S
    while True:
        scene.open("copy", scene.target.transports[0], {"from": "0", "types": [scene.token]})
        events = [heard for heard in scene.until_live("copy") if heard.name != "reset"]
        scene.listeners["copy"].close()
        rows = {heard.data["id"]: heard.id for heard in events if heard.is_row}
        if len(rows) == len(events) and set(objects) <= set(rows):
            scene.names["rows"] = [rows[name] for name in objects]
            return
        assert time.monotonic() < deadline, f"not in the state within {REACH_S} s: {events}"


def step_close(scene: Scene, name: str) -> None:
    """Leave: a listener's cursor stays readable as `${name.cursor}`."""
    scene.listeners[name].close()
