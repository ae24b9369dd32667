"""A running server and its copy erase an object under load: no file has a byte of its content.

The object has 1,000 operations, a parked message and entries in the archive; a durable stream with
the same content is erased, too.
"""

from __future__ import annotations

import gzip
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from tests.compat.oplog.wire import PATIENCE_S, until
from tidings.server.running import Server

MARKER, OBJECT, STREAM = "the-secret-content", "object-x", "stream-x"
REQUESTS, OPERATIONS = 50, 20
CLIENT = httpx.Client(timeout=PATIENCE_S)
JSON = {"content-type": "application/json"}


def url(server: Server, path: str) -> str:
    return f"{server.url}feeds/main/{path}"


def post(server: Server, operations: list[dict[str, Any]]) -> None:
    CLIENT.post(url(server, "ops"), json=operations).raise_for_status()


def operation(id_: str, data: str) -> dict[str, Any]:
    return {"event": "update", "type": "video", "id": id_, "parents": ["p"], "data": data}


def fill(server: Server) -> None:
    """Post the object in small and in large requests, and a stream with the same content."""
    for number in range(REQUESTS):
        data = f"{MARKER} {number} " * (1 if number % 3 else 20)
        post(server, [operation(OBJECT, data)] * OPERATIONS + [operation(f"y{number}", "other")])
    stream = url(server, f"v1/stream/{STREAM}")
    CLIENT.put(stream, headers=JSON).raise_for_status()
    for number in range(3):
        body = f'["{MARKER} {number}"]'.encode()
        CLIENT.post(stream, headers=JSON, content=body).raise_for_status()


def park(server: Server) -> None:
    """Park the first message of a named consumer; its error quotes the message."""
    consumer = url(server, "consumers/index")
    CLIENT.put(consumer, json={}).raise_for_status()
    lease = CLIENT.post(f"{consumer}/lease", json={"worker": "w"}).raise_for_status().json()
    failed = {"fence": lease["fence"], "error": f"cannot write {MARKER}"}
    CLIENT.post(f"{consumer}/fail", json=failed).raise_for_status()
    CLIENT.post(f"{consumer}/park", json={"why": "a test", "by": "ann"}).raise_for_status()
    assert MARKER in CLIENT.get(f"{consumer}/parked").text


def erase(server: Server, type_: str, id_: str) -> dict[str, Any]:
    asked = {"type": type_, "id": id_, "reason": "a test"}
    answer = CLIENT.post(url(server, "erasures"), json=asked)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def state(server: Server, erasure: dict[str, Any]) -> str:
    answer = CLIENT.get(url(server, f"erasures/{erasure['id']}"))
    return str(answer.json()["state"]) if answer.status_code == 200 else ""


def bodies(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each file below *folder*, parts of the archive and pages of the log also unpacked."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.name, path.read_bytes()
            if path.suffix == ".gz":
                yield path.name, gzip.decompress(path.read_bytes())
    for path in folder.rglob("feed.db"):
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as sql:
            for (body,) in sql.execute("SELECT body FROM pages WHERE typeof(body) = 'blob'"):
                yield f"a page of {path.name}", zlib.decompress(body)


def holders(folder: Path) -> list[str]:
    return sorted({name for name, body in bodies(folder) if MARKER.encode() in body})


def load(server: Server, stop: threading.Event) -> None:
    number = 0
    with httpx.Client(timeout=PATIENCE_S) as client:
        while not stop.is_set():
            number += 1
            operations = [operation(f"z{number % 50}-{each}", "load") for each in range(5)]
            client.post(url(server, "ops"), json=operations).raise_for_status()


def test_a_server_and_its_copy_erase_an_object_under_load(tmp_path: Path) -> None:
    """Consumers resume with their cursors, and the server without a trace in its files."""
    place, copied, archive = tmp_path / "data", tmp_path / "copy", tmp_path / "archive"
    archived = "--setting", f"TIDINGS_ARCHIVE={archive.as_uri()}"
    with (
        Server(*archived, data=place) as server,
        Server("--chain-from", f"{server.url}feeds/main", data=copied) as copy,
    ):
        fill(server)
        park(server)
        end = CLIENT.get(url(server, "log")).json()["current"]
        until(lambda: CLIENT.get(url(copy, "log")).json()["current"] == end)
        assert any(MARKER.encode() in each.read_bytes() for each in tmp_path.rglob("feed.db*"))
        stop = threading.Event()
        producer = threading.Thread(target=load, args=(server, stop))
        producer.start()
        try:
            erasures = [erase(server, "video", OBJECT), erase(server, "durable-stream", STREAM)]
            for each in (server, copy):
                until(lambda each=each: {state(each, one) for one in erasures} == {"erased"})  # type: ignore[misc]
        finally:
            stop.set()
            producer.join()
        span = {"from": CLIENT.get(url(server, "log")).json()["oldest"], "to": end, "limit": "1000"}
        entries = CLIENT.get(url(server, "log"), params=span).json()["entries"]
        assert len(entries) == 1000
        assert {each["data"]["id"] for each in entries if each["event"] == "delete"} == {
            f"erased:{int(erasures[0]['id'][8:18], 16):x}"
        }
        read = CLIENT.get(url(server, f"v1/stream/{STREAM}"), params={"offset": "-1"})
        assert read.status_code == 404
        assert MARKER not in CLIENT.get(url(server, "consumers/index/parked")).text
        for each in (server, copy):
            each.stop()
            each.start()  # the file is rewritten without its free space
            each.stop()
        assert holders(tmp_path) == []
