"""Rows O1 to O20: paths, methods, and the requests and answers of POST."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compat.oplog.feed import Feed, ask, op, said
from tests.compat.oplog.wire import JSON, STREAM, Answer, Connection, Listener
from tidings.core.model.timestamps import to_ms
from tidings.core.version import VERSION
from tidings.server.running import Server

MISSING = object()
OPLOGS_HEADERS = {
    "server": f"tidings/{VERSION}",
    "cache-control": "no-cache, no-store, must-revalidate",
    "access-control-allow-origin": "*",
}


def carries_oplogs_headers(answer: Answer) -> bool:
    """Return True if oplog's headers are there; proxies are also asked not to transform (P4.12)."""
    control = answer.headers.get("cache-control", "").removesuffix(", no-transform")
    return OPLOGS_HEADERS.items() <= {**answer.headers, "cache-control": control}.items()


def refused(answer: Answer, status: int, code: str) -> bool:
    """Return True for an error with oplog's status and the reason as JSON."""
    assert carries_oplogs_headers(answer)
    return (answer.status, answer.error["code"]) == (status, code)


def kept(feed: Feed, body: bytes, **headers: str) -> Any:
    """Post *body* and return the data that a consumer gets of its operation."""
    with feed.listening() as listener:
        answer = feed.send(body, **headers)
        assert answer.status == 204, answer
        return listener.next().data


def test_O01_the_root_and_ops_are_the_same(host: Server) -> None:
    """For producers and consumers: both are the feed `main`."""
    listeners = [
        Listener(Connection(host.port, "GET", path, [("accept", STREAM)])) for path in ("/", "/ops")
    ]
    for path in ("/", "/ops"):
        ask(host.port, "POST", path, {"content-type": JSON}, json.dumps(op(path)).encode())

    heard = [listener.take(2) for listener in listeners]
    assert heard[0] == heard[1]
    assert said(heard[0]) == ["insert /", "insert /ops"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("path", ["/nope", "/ops/", "/ops/x", "//", "/OPS", "/feeds/main/"])
def test_O02_other_paths_are_not_found(host: Server, method: str, path: str) -> None:
    """Whatever the method; a path is matched to the letter and nothing is redirected."""
    headers = {"accept": STREAM, "content-type": JSON}

    assert refused(ask(host.port, method, path, headers), 404, "unknown_path")


@pytest.mark.parametrize("path", ["/", "/ops", "/feeds/main/ops"])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_O03_other_methods_are_not_allowed(host: Server, method: str, path: str) -> None:
    """405, with the allowed methods, which oplog did not list."""
    answer = ask(host.port, method, path)

    assert refused(answer, 405, "wrong_method")
    assert answer.headers["allow"] == "GET, HEAD, POST, OPTIONS"


def test_O03_head_is_answered_as_get(host: Server) -> None:
    """An extension: oplog said 405; load balancers ask so. The answer has no body and ends."""
    answer = ask(host.port, "HEAD", "/", {"accept": "text/event-stream"})

    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_O03_options_is_answered_for_browsers(host: Server) -> None:
    """An extension: oplog said 405, so that no page of another origin could post."""
    asked = {"origin": "http://page", "access-control-request-method": "POST"}
    answer = ask(host.port, "OPTIONS", "/ops", asked)

    assert answer.status == 204
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_O09_a_valid_operation_is_204(shared: Feed) -> None:
    """Without a body, with oplog's headers."""
    answer = shared.send(json.dumps(op()).encode())

    assert (answer.status, answer.body) == (204, b"")
    assert carries_oplogs_headers(answer)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "*/*"])
def test_O10_other_content_types(feed: Feed, kind: str) -> None:
    """Missing or another: 415, and nothing is written."""
    headers = {"content-type": kind} if kind else {}
    body = json.dumps(op()).encode()

    assert refused(ask(feed.port, "POST", feed.path, headers, body), 415, "wrong_content_type")
    assert said(feed.copied()) == ["reset", "live"]


def test_O11_a_charset_is_accepted(shared: Feed) -> None:
    """oplog refused what most HTTP libraries send."""
    answer = shared.send(json.dumps(op()).encode(), content_type="application/json; charset=utf-8")

    assert answer.status == 204


@pytest.mark.parametrize("body", [b"{", b'{"event":"create","type":"a","id":"b"}'])
def test_O13_what_is_wrong_is_400(shared: Feed, body: bytes) -> None:
    """oplog said 503, at which producers try again for ever."""
    answer = shared.send(body)

    assert refused(answer, 400, "invalid_operation")
    assert answer.error["rule"]


def test_O14_what_was_acknowledged_is_in_the_next_replication(feed: Feed) -> None:
    """At once, whatever the state has reached; each of several in a row."""
    for number in range(3):
        feed.post(op(f"x{number}"))

        told = said(feed.copied())
        assert {f"insert x{each}" for each in range(number + 1)} <= set(told)
        assert told[-1] == "live"


def test_O15_case(shared: Feed) -> None:
    """Event and type in lower case, names as they are."""
    with shared.listening() as listener:
        shared.post(op("X1", "UPDATE", type="Video", parents=["User/U1"]))
        block = listener.next()

    assert block.name == "update"
    assert (block.data["type"], block.data["id"]) == ("video", "X1")
    assert block.data["parents"] == ["User/U1"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": None}, "id"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"type": None}, "type"),
        ({"type": ""}, "type"),
        ({"event": "create"}, "event"),
        ({"event": None}, "event"),
        ({"parents": ["a", ""]}, "parents[1]"),
        ({"parents": "a"}, "parents"),
        ({"parents": [None]}, "parents[0]"),
        *(({name: MISSING}, name) for name in ("id", "type", "event")),
    ],
)
def test_O16_a_field_that_breaks_its_rule(
    shared: Feed, changes: dict[str, Any], field: str
) -> None:
    """Missing or empty, an unknown event, an empty parent, a name that is not a string."""
    operation = {name: value for name, value in (op() | changes).items() if value is not MISSING}
    answer = shared.send(json.dumps(operation).encode())

    assert refused(answer, 400, "invalid_operation")
    assert answer.error["field"] == field


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("2026-11-20T17:19:10.94Z", "2026-11-20T17:19:10.94Z"),
        ("2026-11-20T17:19:10.940999+01:00", "2026-11-20T16:19:10.94Z"),
        ("2026-11-20T17:19:10.000-23:59", "2026-11-21T17:18:10Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("3000-12-31T23:59:59.999Z", "3000-12-31T23:59:59.999Z"),
    ],
)
def test_O17_a_timestamp_of_any_offset_and_year(shared: Feed, given: str, told: str) -> None:
    """RFC 3339, returned in UTC, cut to milliseconds."""
    assert kept(shared, json.dumps(op(timestamp=given)).encode())["timestamp"] == told


def test_O17_without_a_timestamp_it_is_the_time_of_receipt(shared: Feed) -> None:
    """Absent and null are the same."""
    times = []
    with shared.listening() as listener:
        for operation in (op(), op(timestamp=None)):
            shared.post(operation)
            times.append(listener.next().data["timestamp"])

    assert times == sorted(times, key=to_ms)  # texts do not sort: 10.94 is after 10.941
    assert all(len(each) >= len("2026-11-20T17:19:10Z") and each[-1] == "Z" for each in times)


@pytest.mark.parametrize("given", ["2026-11-20", "", 1795195114525, "yesterday", True, {}])
def test_O17_what_is_no_timestamp(shared: Feed, given: object) -> None:
    """A date alone, a number, an empty text."""
    assert shared.send(json.dumps(op(timestamp=given)).encode()).error["field"] == "timestamp"


def test_O18_keys(shared: Feed) -> None:
    """In any case, the last of a repeated one counts, unknown ones are left out."""
    body = (
        b' {"EVENT":"insert","Type":"video","iD":"a","ID":"b","iD":"x1","ref":"no","n":{"id":1}}\n'
    )
    data = kept(shared, body)

    assert list(data) == ["timestamp", "parents", "type", "id"]
    assert (data["type"], data["id"], data["parents"]) == ("video", "x1", [])


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"event":"insert","type":"video","id":" "}', " "),
        (b'{"event":"insert","type":"video","id":"a\xffb"}', "a\ufffdb"),
        (b'{"event":"insert","type":"video","id":"<a&b>\\u2028","parents":null}', "<a&b>\u2028"),
    ],
)
def test_O18_names_that_are_odd(shared: Feed, body: bytes, name: str) -> None:
    """A blank name is valid; invalid UTF-8 becomes U+FFFD; null parents are empty."""
    data = kept(shared, body)

    assert (data["id"], data["parents"]) == (name, [])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"7",
        b"[]",
        b"[null]",
        b'{"event":"insert","type":"video","id":"a"} x',
        b'{"event":"insert","type":"video","id":"a"}{}',
        b'{"event":"insert","type":"video","id":"a",}',
        b'\xef\xbb\xbf{"event":"insert","type":"video","id":"a"}',
    ],
)
def test_O19_what_is_no_operation(shared: Feed, body: bytes) -> None:
    """Nothing, null, an empty array, trailing garbage, a byte order mark."""
    assert refused(shared.send(body), 400, "invalid_operation")


def test_O19_an_array_is_a_batch(feed: Feed) -> None:
    """An extension: oplog refused it. All of it is taken, in its order, or nothing."""
    assert feed.send(json.dumps([op("a"), op("b")]).encode()).status == 204
    assert feed.send(json.dumps([op("c"), op("")]).encode()).status == 400

    assert set(said(feed.copied())) == {"reset", "insert a", "insert b", "live"}


@pytest.mark.parametrize("event", ["update", "delete"])
def test_O20_an_object_never_seen(shared: Feed, event: str) -> None:
    """Accepted and streamed, whatever is said of it."""
    with shared.listening() as listener:
        shared.post(op("ghost", event))

        assert str(listener.next()) == f"{event} ghost"
