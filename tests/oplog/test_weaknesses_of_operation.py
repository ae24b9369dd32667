"""
Where oplog told too much, or too little to its operators and to browsers, and what holds here.

The last part of test_weaknesses.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidings.core import limits
from tidings.core.auth.guard import Guard
from tidings.core.auth.guessing_limit import Misses
from tidings.core.auth.passwords import Verifier
from tidings.core.catchup.sse import Streamer
from tidings.core.errors import Rejected
from tidings.core.ingest.ingest import Request
from tidings.core.maintenance.status import LAGGING, OK, UNAVAILABLE, Reporter
from tidings.core.model.cursors import START
from tidings.web.answers import refusal

from tests.core.following import caught_up, names
from tests.core.scene import FEED, FEEDS, RETENTION, TOMBSTONE_MS, Scene, op
from tests.oplog.in_process import ORIGIN, Client, run, streams, until_live

SECRET = "s3cret-of-the-environment"


@pytest.fixture
def scene() -> Scene:
    """A feed in memory, of its own for each test."""
    return Scene()


def refused(scene: Scene, body: str) -> Rejected:
    with pytest.raises(Rejected) as caught:
        scene.ingester.accept(Request(FEED, body.encode(), "application/json"))
    return caught.value


def reporter(scene: Scene) -> Reporter:
    return Reporter(scene.log, scene.followers, scene.tallies, scene.reader, FEEDS)


def test_W22_a_status_tells_nothing_of_the_machine(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oplog's held its command line, with two passwords and the database's, and its memory."""
    monkeypatch.setenv("TIDINGS_PASSWORD", SECRET)
    scene.profiles.save(FEED, replace(scene.profiles.profile(FEED), read_passwords=("hash-of-it",)))
    text = json.dumps(reporter(scene).report(FEED))

    for told in (SECRET, "hash-of-it", "cmdline", "memstats", sys.argv[0], os.getcwd()):
        assert told not in text


@pytest.mark.parametrize("command", ["tail", "post", "agent", "status"])
def test_W22_help_tells_no_secret(command: str) -> None:
    """oplog printed what the environment held as the defaults of its options."""
    tidings = Path(sys.executable).parent / "tidings"
    environment = {**os.environ, "TIDINGS_PASSWORD": SECRET}
    helped = subprocess.run(
        [tidings, command, "--help"], env=environment, capture_output=True, text=True, check=True
    )

    assert "TIDINGS_PASSWORD" in helped.stdout or command == "status"
    assert SECRET not in helped.stdout + helped.stderr


def test_W23_a_client_is_told_what_is_wrong(scene: Scene) -> None:
    """
    oplog's 503 without a word made producers send the same bad operation again. Here it is 400
    with field, value and rule; and a batch is one request.
    """
    body = json.loads(refusal(refused(scene, '{"event":"move","type":"t","id":"x"}')).body)
    assert (body["error"]["code"], body["error"]["field"]) == ("invalid_operation", "event")
    assert "move" in body["error"]["value"] and "insert" in body["error"]["rule"]

    ids = scene.ingester.accept(
        Request(FEED, json.dumps([op("a"), op("b")]).encode(), "application/json")
    )
    assert len(ids) == len(caught_up(scene, START.encode())) == 2


def test_W23_who_may_not_read_is_asked_for_a_password(scene: Scene) -> None:
    """oplog's 401 had no WWW-Authenticate, so nobody was asked; nor did it answer a preflight."""
    guard = Guard(scene.profiles, Verifier(b"closed"), open=False, misses=Misses(lambda: 0, 50))
    scene.streamer = Streamer(scene.catch_up, FEEDS, guard, scene.holding)
    app = streams(scene)

    answer = run(Client(app).get("0"))
    asked = run(Client(app).ask("OPTIONS", origin=ORIGIN))
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert "event:" not in answer.text
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, ORIGIN)


def test_W23_the_agent_listens_to_its_own_machine() -> None:
    """oplog took datagrams from anybody, on all addresses, and passed them on."""
    tidings = Path(sys.executable).parent / "tidings"
    helped = subprocess.run(
        [tidings, "agent", "--help"], capture_output=True, text=True, check=True
    )

    assert "127.0.0.1:8042" in helped.stdout


def test_W24_a_browser_is_told_all_and_can_ask_for_all(scene: Scene) -> None:
    """
    EventSource drops blocks without data, which oplog's `reset` and `live` were, and cannot set a
    header. Here both have data, the id may stand in the query, and a page elsewhere may read.
    """
    scene.post(op("x", "insert"))
    scene.project()
    client = Client(streams(scene), enough=until_live)
    run(client.ask("GET", "lastEventId=0", accept="text/event-stream", origin=ORIGIN))

    assert [event.name for event in client.events()] == ["reset", "insert", "live"]
    assert len(re.findall("^data: .+$", client.text, re.MULTILINE)) == 3
    assert client.headers["access-control-allow-origin"] == ORIGIN
    assert "last-event-id" in client.headers["access-control-expose-headers"]


def test_W25_a_status_says_who_lags_and_by_how_much(scene: Scene) -> None:
    """oplog was always OK, also while its database was away, and knew nothing of lag."""
    scene.post(op("x"))
    scene.push()
    assert reporter(scene).report(FEED)["status"] == OK

    scene.now_ms += limits.LAG_MS_MAX + 1
    found: Any = reporter(scene).report(FEED)
    lags = {each["name"]: (each["lag_pages"], each["lag_ms"]) for each in found["followers"]}
    assert found["status"] == LAGGING
    assert lags == {"push": (0, 0), "state": (1, limits.LAG_MS_MAX + 1)}
    assert reporter(scene).unavailable(FEED)["status"] == UNAVAILABLE


def test_W26_deleted_objects_are_forgotten_in_the_end(scene: Scene) -> None:
    """oplog kept them for ever. Here until nobody needs them: who was away longer is reset."""
    before = scene.post(op("gone", "insert"), op("stays", "insert"))
    scene.post(op("gone", "delete"))
    scene.project()
    assert len(scene.rows()) == 2

    scene.now_ms += TOMBSTONE_MS
    scene.state.expire(scene.now_ms)
    scene.log.raise_floor(FEED, 3)
    scene.log.expire(2**62)
    assert len(scene.rows()) == 1
    assert names(caught_up(scene, before.end.encode())) == ["reset", "insert stays", "live"]


def test_W26_the_log_is_kept_by_time(scene: Scene) -> None:
    """
    oplog's was a number of bytes, so that a busy hour took the days before it away. Here age
    decides, whatever the pages weigh.
    """
    scene.post(op("old", data="d" * 60_000))
    scene.now_ms += RETENTION.age_ms
    for number in range(200):
        scene.post(op(f"x{number}", data="d" * 60_000))
    scene.project()
    scene.push()

    assert scene.trimmer.run(FEED) == 2
    scene.now_ms += RETENTION.age_ms - 1
    assert scene.trimmer.run(FEED) == 2
    scene.now_ms += 1
    assert scene.trimmer.run(FEED) == 202
