"""Posts of a client, and their answers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.compat.changeagent.client import Changes
from tests.compat.oplog.feed import ask
from tidings.http.asgi import BODY_BYTES_MAX


def test_A01_a_change_is_answered_with_its_id(changes: Changes) -> None:
    """200, JSON, and the id alone."""
    answer = changes.send(b'{"data":{"Hello":"world"}}')

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    found = json.loads(answer.body)
    assert list(found) == ["_id"] and 0 < found["_id"] < 2**53


@pytest.mark.parametrize(
    "value",
    [{"a": 1}, [1, "x"], "text", 12, 1.5, True, None, {"tags": ["a"]}, {}, "\u2028"],
    ids=lambda value: json.dumps(value),
)
def test_A02_any_json_value_is_data(changes: Changes, value: Any) -> None:
    """The whole body if it has no field `data`; tags next to no `data` are data too."""
    assert changes.send(json.dumps(value).encode()).status == 200

    [change] = changes.get()["changes"]
    assert change["data"] == value and "tags" not in change


def test_A03_a_clients_id_and_time_are_ignored(changes: Changes) -> None:
    """They are ours to give."""
    changes.send(b'{"_id":7,"_ts":8,"data":"x","tags":["t"]}')
    changes.send(b'{"_id":7}')

    first, second = changes.get()["changes"]
    assert first["_id"] != 7 and first["_ts"] != 8
    assert (first["data"], first["tags"], second["data"]) == ("x", ["t"], None)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-8", 200),
        ("application/json", 200),
        ("application/x-ndjson", 415),
        ("text/plain", 415),
        ("", 415),
    ],
)
def test_A04_only_json_is_read(changes: Changes, kind: str, status: int) -> None:
    """Whatever parameters it has; else 415 in changeagent's words."""
    answer = changes.send(b"1", content_type=kind)

    assert answer.status == status
    if status == 415:
        assert answer.body == b'{"error":"Unsupported content type"}'


@pytest.mark.parametrize("body", [b"{", b"nope", b"NaN", b'{"data":}', b" "])
def test_A05_what_is_no_json_is_refused(changes: Changes, body: bytes) -> None:
    """400 in changeagent's words, and nothing is written."""
    answer = changes.send(body)

    assert (answer.status, answer.body) == (400, b'{"error":"Invalid JSON"}')
    assert changes.get()["changes"] == []


def test_A06_what_was_answered_can_be_read(changes: Changes) -> None:
    """At once, after the id before it, by each of many writers at the same time."""

    def write(number: int) -> bool:
        found = changes.post(number)
        [change, *_] = changes.get(("since", found - 1))["changes"]
        return bool(change["_id"] == found and change["data"] == number)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(write, range(40)))


def test_A07_A08_ids_ascend_over_all_writers_and_none_comes_late(changes: Changes) -> None:
    """While many write, a reader that keeps its place misses none and sees none twice."""
    seen: list[int] = []

    def read(wanted: int) -> None:
        at = 0
        while len(seen) < wanted:
            for change in changes.get(("since", at), ("block", 5))["changes"]:
                at = change["_id"]
                seen.append(at)

    with ThreadPoolExecutor(9) as threads:
        reading = threads.submit(read, 80)
        written = list(threads.map(changes.post, range(80)))
        reading.result(60)

    assert seen == sorted(written) == sorted(set(written))


def test_A05_a_body_that_is_too_large_is_refused_in_changeagents_form(changes: Changes) -> None:
    """The server refuses it before an endpoint sees it."""
    answer = changes.send(b'"' + b"x" * BODY_BYTES_MAX + b'"')

    assert answer.status == 413
    assert list(json.loads(answer.body)) == ["error"] and b'"error":"' in answer.body


def test_a_slash_at_the_end_is_redirected(changes: Changes) -> None:
    """With the prefix and the query; a POST stays a POST."""
    for method, status in (("GET", 301), ("POST", 308)):
        answer = ask(changes.port, method, f"/foo{changes.path}/?since=1&tag=a%2Cb&tag=c")

        assert answer.status == status
        assert answer.headers["location"] == f"/foo{changes.path}?since=1&tag=a%2Cb&tag=c"
    assert ask(changes.port, "GET", "/nothing/").status == 404
