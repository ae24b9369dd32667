"""Cases in which oplog revealed too much, or too little to operators and browsers, and their fixes.

The last part of test_weaknesses.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.compat.oplog.in_process import ORIGIN, Client, accept, refused, run, streams, until_live
from tests.unit.core.following import caught_up, names
from tests.unit.core.scene import FEED, TOMBSTONE_MS, Scene, op
from tidings.core.model.cursors import START
from tidings.http.answers import refusal


def test_W23_a_client_is_told_what_is_wrong(scene: Scene) -> None:
    """oplog's 503 without a word made producers send the same bad operation again. Here it is 400
    with field, value and rule; and a batch is one request.
    """
    body = json.loads(refusal(refused(scene, '{"event":"move","type":"t","id":"x"}')).body)
    assert (body["error"]["code"], body["error"]["field"]) == ("invalid_operation", "event")
    assert "move" in body["error"]["value"] and "insert" in body["error"]["rule"]

    ids = accept(scene, json.dumps([op("a"), op("b")]))
    assert len(ids) == len(caught_up(scene, START.encode())) == 2


def test_W23_the_agent_listens_to_its_own_machine() -> None:
    """oplog accepted datagrams from any host, on all addresses, and passed them on."""
    tidings = Path(sys.executable).parent / "tidings"
    helped = subprocess.run(
        [tidings, "agent", "--help"], capture_output=True, text=True, check=True
    )

    assert "127.0.0.1:8042" in helped.stdout


def test_W24_a_browser_is_told_all_and_can_ask_for_all(scene: Scene) -> None:
    """EventSource drops blocks without data, which oplog's `reset` and `live` were, and cannot set
    a header. Here both have data, the query may contain the id, and a page elsewhere may read.
    """
    scene.post(op("x", "insert"))
    scene.project()
    client = Client(streams(scene), enough=until_live)
    run(client.ask("GET", "lastEventId=0", accept="text/event-stream", origin=ORIGIN))

    assert [event.name for event in client.events()] == ["reset", "insert", "live"]
    assert len(re.findall("^data: .+$", client.text, re.MULTILINE)) == 3
    assert client.headers["access-control-allow-origin"] == ORIGIN
    assert "last-event-id" in client.headers["access-control-expose-headers"]


def test_W26_deleted_objects_are_forgotten_in_the_end(scene: Scene) -> None:
    """oplog kept them for ever. Here they expire: a client that was away longer is reset."""
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
