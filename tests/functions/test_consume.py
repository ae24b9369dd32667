"""consume: named consumers over HTTP, for workers and operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tidings.aws.wiring import adapters
from tidings.core import limits
from tidings.core.auth import passwords
from tidings.core.model.cursors import PAGE_END, START
from tidings.core.settings.feed import Profile

from tests.functions.cloud import Cloud, start_anew
from tests.functions.consuming import ACTION, CONSUMER, act, ask, post

LOG = "/feeds/{feed}/log"
WHY = {"why": "a test"}


def register(**fields: object) -> None:
    assert ask("PUT", CONSUMER, fields)[0] == 201


def test_a_worker_from_its_lease_to_its_release(cloud: Cloud) -> None:
    """What it is told is what it needs to go on."""
    first, second, third = post("a", "b", "a")
    register(types=["a"])
    status, session = act("lease", {"worker": "w"})
    assert status == 200
    assert session.pop("lease_ms") > 29_000
    assert session == {
        "fence": 1,
        "cursor": "0" * 18 + "7fffff",
        "copying": False,
        "acked": "",
        "single_through": None,
        "retries": [],
        "paused": False,
        "types": ["a"],
    }
    status, session = act("ack", {"fence": 1, "through": first, "ids": [third], "sending": third})
    assert (status, session["acked"]) == (200, "")  # what lies between is not for it
    assert ask("GET", CONSUMER)[1]["lag_pages"] == 0
    assert act("ack", {"fence": 1, "ids": [second]})[0] == 200
    assert act("release", {"fence": 1})[0] == 200
    assert ask("GET", CONSUMER)[1]["state"] == "idle"


def test_T34_consumers_are_listed(cloud: Cloud) -> None:
    """With everything an operator wants to know."""
    ids = post("a", "a", "a")
    register()
    act("lease", {"worker": "w"})
    act("ack", {"fence": 1, "ids": ids[1:2], "sending": ids[2]})
    act("fail", {"fence": 1, "id": ids[0], "error": "too long"})
    (found,) = ask("GET", "/feeds/{feed}/consumers")[1]["consumers"]
    assert found == ask("GET", CONSUMER)[1] | {"lag_ms": found["lag_ms"]}
    failure = found.pop("failure")
    assert (failure["id"], failure["error"], failure["times"]) == (ids[0], "too long", 1)
    assert found.pop("lag_ms") >= 0
    assert found == {
        "name": "index",
        "state": "failed",
        "position": None,
        "copying": False,
        "acked": "2.0-0",
        "lag_pages": 3,
        "parked": 0,
        "retries": [],
        "single_through": ids[2],
        "paused": False,
        "worker": None,
    }


def test_T32_T33_the_log(cloud: Cloud) -> None:
    """Its ends, null where it is empty, and what is behind it; and its messages from X to Y."""
    assert ask("GET", LOG) == (200, {"oldest": None, "current": None, "end": START.encode()})
    ids = post("a", "b", "c")
    end = ids[2][:18] + f"{PAGE_END:06x}"
    assert ask("GET", LOG) == (200, {"oldest": ids[0], "current": ids[2], "end": end})
    found = ask("GET", LOG, query={"from": ids[1], "to": ids[2]})[1]["entries"]
    assert [(each["id"], each["event"], each["data"]["type"]) for each in found] == [
        (ids[1], "update", "b"),
        (ids[2], "update", "c"),
    ]
    assert {"timestamp", "parents", "id"} <= found[0]["data"].keys()
    assert len(ask("GET", LOG, query={"from": ids[0], "limit": "1"})[1]["entries"]) == 1


def test_T35_operators_are_noted(cloud: Cloud) -> None:
    """By the name they give, else by the user of HTTP Basic; the latest first."""
    ids = post("a", "a")
    register()
    act("step", {**WHY, "by": "ben"})
    status, parked = act("park", WHY)
    assert (status, parked["parked"]["id"]) == (200, ids[1])
    notes = ask("GET", CONSUMER + "/notes")[1]["notes"]
    assert {note.pop("at_ms") > 10**12 for note in notes} == {True}
    assert notes == [
        {"who": "ann", "what": "park", "why": "a test", "id": ids[1]},
        {"who": "ben", "what": "step", "why": "a test", "id": ids[0]},
    ]
    (kept,) = ask("GET", CONSUMER + "/parked")[1]["parked"]
    assert (kept["id"], kept["error"], kept["data"]["id"]) == (ids[1], "a test", "1")
    assert act("retry", {**WHY, "id": "all"})[1]["retries"] == [ids[1]]
    assert act("drop", {**WHY, "id": ids[1]})[1]["parked"] == 0
    assert act("mark", {**WHY, "position": "oldest"})[1]["position"] is None
    assert act("pause", WHY)[1]["state"] == "paused"
    assert act("resume", WHY)[1]["state"] == "idle"
    assert ask("DELETE", CONSUMER, query=WHY) == (200, {"deleted": "index"})
    assert ask("GET", CONSUMER)[0] == 404


ID = "0" * 24
WRONG = [
    ("PUT", CONSUMER, {"form": "now"}, "", 400, "form"),
    ("PUT", CONSUMER, {"from": 7}, "", 400, "from"),
    ("PUT", CONSUMER, {"types": "a"}, "", 400, "types"),
    ("PUT", CONSUMER, [], "", 400, "body"),
    ("POST", ACTION, {}, "lease", 400, "worker"),
    ("POST", ACTION, {"worker": "w", "for": 3}, "lease", 400, "for"),
    ("POST", ACTION, {"fence": "1"}, "ack", 400, "fence"),
    ("POST", ACTION, {"fence": True}, "ack", 400, "fence"),
    ("POST", ACTION, {"fence": 1, "through": "now"}, "ack", 400, "through"),
    ("POST", ACTION, {"fence": 1, "ids": [ID, 7]}, "ack", 400, "ids"),
    ("POST", ACTION, {"fence": 1, "ids": [ID] * 1001}, "ack", 400, "ids"),
    ("POST", ACTION, {"fence": 1, "id": ID}, "fail", 400, "error"),
    ("POST", ACTION, {}, "step", 400, "why"),
    ("POST", ACTION, {**WHY, "by": ""}, "step", 400, "by"),
    ("POST", ACTION, WHY, "mark", 400, "position"),
    ("POST", ACTION, WHY, "reset", 404, "action"),
    ("POST", ACTION, {"worker": "w"}, "lease", 404, "consumer"),
    ("GET", CONSUMER, None, "", 404, "consumer"),
    ("DELETE", CONSUMER, None, "", 400, "why"),
    ("GET", LOG, None, "?form=1", 400, "form"),
    ("GET", LOG, None, "?from=now", 400, "from"),
    ("GET", LOG, None, "?from=" + ID + "&limit=0", 400, "limit"),
    ("GET", LOG, None, "?from=" + ID + "&limit=" + "9" * 5000, 400, "limit"),
]


@pytest.mark.parametrize(
    ("method", "route", "body", "more", "status", "field"),
    WRONG,
    ids=[
        f"{method}-{more or 'body'}-{field}-{at}"
        for at, (method, *_, more, _, field) in enumerate(WRONG)
    ],
)
def test_T39_what_breaks_a_rule_is_named(
    cloud: Cloud, method: str, route: str, body: object, more: str, status: int, field: str
) -> None:
    """Unknown fields too: a setting that is ignored is off, and nobody knows. Nothing is kept."""
    query = dict(each.split("=") for each in more[1:].split("&")) if more[:1] == "?" else {}
    found, answer = ask(method, route, body, query=query, action=more)
    assert (found, answer["error"]["field"]) == (status, field)
    assert ask("GET", "/feeds/{feed}/consumers")[1] == {"consumers": []}


def test_who_may_do_what(cloud: Cloud) -> None:
    """A reader moves no consumer: who registers, steers or works for one is who may post."""
    hashes = [
        passwords.hashed(each, salt=bytes(16), now_ms=0) for each in ("read-secret", "post-secret")
    ]
    adapters.profiles().save(
        "main", Profile(read_passwords=(hashes[0],), ingest_passwords=(hashes[1],))
    )
    start_anew()
    asked: dict[str, Callable[[str], int]] = {
        "register": lambda password: ask("PUT", CONSUMER, password=password)[0],
        "lease": lambda password: act("lease", {"worker": "w"}, password=password)[0],
        "list": lambda password: ask("GET", "/feeds/{feed}/consumers", password=password)[0],
        "log": lambda password: ask("GET", LOG, password=password)[0],
        "pause": lambda password: act("pause", WHY, password=password)[0],
        "delete": lambda password: ask("DELETE", CONSUMER, query=WHY, password=password)[0],
    }
    allowed = {
        name: [attempt(each) for each in ("post-secret", "read-secret", "else")]
        for name, attempt in asked.items()
    }
    assert allowed == {
        "register": [201, 401, 401],
        "lease": [200, 401, 401],
        "list": [401, 200, 401],
        "log": [401, 200, 401],
        "pause": [200, 401, 401],
        "delete": [200, 401, 401],
    }


def test_another_feed_has_no_such_consumer(cloud: Cloud) -> None:
    """And a feed that is not there says so."""
    assert ask("GET", CONSUMER, feed="none")[1]["error"]["code"] == "unknown_feed"


def test_a_body_is_measured_before_it_is_read(cloud: Cloud) -> None:
    """As that of every request: 413, and it is not parsed."""
    status, answer = ask("POST", ACTION, {"why": "x" * limits.REQUEST_BYTES_MAX}, action="step")
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (413, "too_large", "body")


def test_what_is_not_known_is_not_repeated(cloud: Cloud) -> None:
    """It may be a secret in the wrong place: only its name is told."""
    for found in (
        ask("POST", ACTION, {"worker": "w", "password": "swordfish"}, action="lease"),
        ask("POST", ACTION, ["swordfish"], action="lease"),
        ask("GET", LOG, query={"password": "swordfish"}),
    ):
        assert found[0] == 400
        assert "swordfish" not in str(found[1])
