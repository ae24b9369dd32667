"""A running server deletes a feed under load, and is killed while it removes the feed's data.

After each start it continues, and at the end no file has a byte of the feed. The other feeds of the
server, and a feed of the same name that was created in the meantime, keep what was acknowledged.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.oplog.wire import PATIENCE_S
from tests.e2e.test_erasure import bodies
from tidings.server.running import Server

NAME, MARKER = "orders", "the-secret-content"
REQUESTS, OPERATIONS, KILLS = 60, 200, 4
CLIENT = httpx.Client(timeout=PATIENCE_S)
ENDED_S = 40.0  # the promise is 5 s; the end of a wait comes after 60 s
JSON = {"content-type": "application/json"}


def url(server: Server, path: str = "", name: str = NAME) -> str:
    return f"{server.url}feeds/{name}{path}"


def operation(id_: str, data: str) -> dict[str, Any]:
    return {"event": "update", "type": "video", "id": id_, "parents": ["p"], "data": data}


def fill(server: Server) -> None:
    """Use everything that a feed has: its log, state, archive, a stream, a consumer, a webhook."""
    for number in range(REQUESTS):
        data = f"{MARKER} {number} " * (1 if number % 3 else 20)
        posted = [operation(f"{MARKER}-{number}-{each}", data) for each in range(OPERATIONS)]
        CLIENT.post(url(server, "/ops"), json=posted).raise_for_status()
    CLIENT.put(url(server, "/v1/stream/s"), headers=JSON).raise_for_status()
    body = f'["{MARKER}"]'.encode()
    CLIENT.post(url(server, "/v1/stream/s"), headers=JSON, content=body).raise_for_status()
    CLIENT.put(url(server, "/consumers/index"), json={}).raise_for_status()
    hook = {"url": f"http://127.0.0.1:9/{MARKER}"}
    CLIENT.put(url(server, "/hooks/h"), json=hook).raise_for_status()


def state(server: Server) -> dict[str, Any]:
    answer = CLIENT.get(url(server)).raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def holders(folder: Path) -> list[str]:
    return sorted({name for name, body in bodies(folder) if MARKER.encode() in body})


def ids_of(server: Server, name: str) -> list[str]:
    found: list[str] = []
    since = 0
    while True:
        query = f"/changes?limit=1000&since={since}"
        listing = CLIENT.get(url(server, query, name)).raise_for_status().json()
        found += [each["data"]["id"] for each in listing["changes"]]
        if listing["atEnd"]:
            return found
        since = listing["next"]


def kill_often(server: Server) -> list[str]:
    """Kill and start the server; create the feed again, and return what was acknowledged in it."""
    acknowledged = []
    for kill in range(KILLS):
        time.sleep(0.05 * (kill + 1))
        server.kill()
        server.start()
        if not kill:
            assert CLIENT.put(url(server)).status_code == 201
        CLIENT.post(url(server, "/ops"), json=[operation(f"n{kill}", "new")]).raise_for_status()
        acknowledged.append(f"n{kill}")
    return acknowledged


def wait_until_removed(server: Server) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while state(server)["removals"][-1]["state"] != "deleted":
        assert time.monotonic() < end_s, state(server)
        time.sleep(0.2)


def test_a_server_is_killed_while_it_removes_a_feed(tmp_path: Path) -> None:
    data, archive = tmp_path / "data", tmp_path / "archive"
    archived = "--setting", f"TIDINGS_ARCHIVE={archive.as_uri()}"
    with Server(*archived, data=data) as server:
        assert CLIENT.put(url(server)).status_code == 201
        fill(server)
        old = CLIENT.get(url(server, "/log")).json()["end"]
        CLIENT.post(url(server, "/ops", "main"), json=[operation("kept", "x")]).raise_for_status()
        assert holders(tmp_path)
        refused = CLIENT.delete(url(server, f"?confirm={NAME}"))
        assert refused.status_code == 409 and "the webhook h" in refused.text
        deleted = CLIENT.delete(url(server, f"?confirm={NAME}&force=true"))
        assert deleted.status_code == 202, deleted.text
        assert CLIENT.get(url(server, "/changes")).status_code == 410
        acknowledged = kill_often(server)
        wait_until_removed(server)
        assert ids_of(server, NAME) == acknowledged
        assert ids_of(server, "main") == ["kept"]
        answer = CLIENT.get(url(server, f"/pages?after={old}"))
        assert answer.status_code == 409, answer.text
        server.stop()
        server.start()  # rewrites the file, as after an erasure
    assert holders(tmp_path) == []


@pytest.mark.parametrize("path", ["/ops", "/changes?block=60"])
def test_a_reader_ends_with_its_feed(tmp_path: Path, path: str) -> None:
    """Also if it waits, and long before the end of its wait."""
    with Server(data=tmp_path / "data") as server:
        CLIENT.put(url(server)).raise_for_status()
        CLIENT.post(url(server, "/ops"), json=[operation("a", "x")]).raise_for_status()
        since = CLIENT.get(url(server, "/changes")).json()["next"]
        ended = threading.Event()

        def read() -> None:
            target = url(server, f"{path}&since={since}" if "?" in path else path)
            with httpx.stream("GET", target, timeout=PATIENCE_S) as answer:
                for _ in answer.iter_bytes():
                    pass
            ended.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        assert not ended.wait(1)
        CLIENT.delete(url(server, f"?confirm={NAME}")).raise_for_status()
        assert ended.wait(ENDED_S)
        reader.join()
