"""Bad requests of producers: each with its status, code and message, and nothing written.

Bad cursors, filters and messages of consumers are in test_hostile_consumers.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, line, op
from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.core.ingest.ingest import PostRequest
from tidings.core.model.json_body import JSON_TYPE, NDJSON_TYPE


@dataclass(frozen=True)
class Bad:
    """A request and the refusal it meets; *says* is part of the message."""

    name: str
    body: bytes
    says: str
    status: int = 400
    code: str = "invalid_operation"
    content_type: str = JSON_TYPE


def bad(name: str, says: str, **fields: object) -> Bad:
    """Return an ordinary operation except for *fields*."""
    return Bad(name, json.dumps(op() | fields).encode(), says)


def large(name: str, says: str, **fields: object) -> Bad:
    return Bad(name, json.dumps(op() | fields).encode(), says, 413, "too_large")


def raw(name: str, body: str | bytes, says: str) -> Bad:
    return Bad(name, body.encode() if isinstance(body, str) else body, says)


def typed(name: str, content_type: str) -> Bad:
    says = "Content-Type: must be application/json or application/x-ndjson"
    return Bad(name, json.dumps(op()).encode(), says, 415, "wrong_content_type", content_type)


def lines(name: str, body: str | bytes, says: str) -> Bad:
    refused = raw(name, body, says)
    return Bad(name, refused.body, says, content_type=NDJSON_TYPE)


EVENTS = "event: must be one of insert, update, delete"
DATE = "timestamp: must be an RFC 3339 date-time"
BEYOND = "data: must not hold a number beyond the range of a double"

REQUESTS = [
    # oplog row 10: the content type
    typed("O10 no content type", ""),
    typed("O10 text", "text/plain"),
    typed("O10 a form", "application/x-www-form-urlencoded"),
    typed("O10 only nearly", "application/json2"),
    typed("O10 a list", "application/json, text/plain"),
    typed("O10 a control character", "application/json\0"),
    # row 13: not JSON
    raw("O13 text", "hello", "body: must be JSON"),
    raw("O13 single quotes", "{'event':'update'}", "body: must be JSON"),
    raw("O13 a comment", "/**/{}", "body: must be JSON"),
    raw("O13 a byte order mark", b"\xef\xbb\xbf{}", "body: must be JSON"),
    raw("O13 UTF-16", '{"event":"update"}'.encode("utf-16"), "body: must be JSON"),
    raw("O13 a control character", '{"id":"a\nb"}', "body: must be JSON"),
    raw("O13 a NUL byte", '{"id":"a\0b"}', "body: must be JSON"),
    raw("O13 cut off", '{"event":"update","type":"video","id":"x', "body: must be JSON"),
    raw("NaN", '{"data":NaN}', "body: must be JSON (NaN is not JSON)"),
    raw("Infinity", '{"data":Infinity}', "body: must be JSON (Infinity is not JSON)"),
    raw("-Infinity", '{"data":[-Infinity]}', "body: must be JSON (-Infinity is not JSON)"),
    raw("an integer of 5000 digits", b"9" * 5000, "body: must be JSON"),
    raw("its negative", b'{"data":-' + b"9" * 5000 + b"}", "body: must be JSON"),
    raw("10,000 arrays", "[" * 10_000 + "]" * 10_000, "body: nested deeper than 32"),
    raw("10,000 objects", '{"data":' * 10_000 + "1" + "}" * 10_000, "body: nested deeper than 32"),
    raw("a million brackets", b"[" * 1_000_000, "body: nested deeper than 32"),
    raw("33 arrays", "[" * 33 + "]" * 33, "body: nested deeper than 32"),
    raw("an endless string of escapes", b'"' + b'\\"' * 500_000, "body: must be JSON"),
    # row 16: the fields of an operation
    bad("O16 no event", EVENTS, event=None),
    bad("O16 an event in another tongue", EVENTS, event="cr\u00e9er"),
    bad("O16 oplog-sync's create", EVENTS, event="create"),
    bad("O16 an event with a blank", EVENTS, event="update "),
    bad("O16 an event that is a number", EVENTS, event=1),
    bad("O16 events", EVENTS, event=["update"]),
    raw("O16 without id", '{"event":"update","type":"video"}', "id: is required"),
    raw("O16 without type", '{"event":"update","id":"x"}', "type: is required"),
    bad("O16 an empty id", "id: must not be empty", id=""),
    bad("O16 an empty type", "type: must not be empty", type=""),
    bad("O16 a null id", "id: must be a string", id=None),
    bad("O16 a number as id", "id: must be a string", id=7),
    bad("O16 a fraction as id", "id: must be a string", id=1.5),
    bad("O16 a truth as id", "id: must be a string", id=True),
    bad("O16 an object as id", "id: must be a string", id={"$oid": "x"}),
    bad("O16 a number as type", "type: must be a string", type=7),
    bad("O16 an empty parent", "parents[1]: must not be empty", parents=["a", ""]),
    bad("O16 a number as parent", "parents[0]: must be a string", parents=[1]),
    bad("O16 a null parent", "parents[0]: must be a string", parents=[None]),
    bad("O16 parents as text", "parents: must be an array of strings", parents="a,b"),
    bad("O16 parents as object", "parents: must be an array of strings", parents={"a": 1}),
    bad("tags as text", "tags: must be an array of strings", tags="a"),
    bad("an empty change", "changed[0]: must not be empty", changed=[""]),
    bad("NUL in the id", "id: must not contain U+0000", id="a\0b"),
    bad("NUL in the type", "type: must not contain U+0000", type="\0"),
    bad("NUL in a parent", "parents[0]: must not contain U+0000", parents=["\0"]),
    bad("a lone surrogate in the id", "id: must not contain a lone surrogate", id="\ud800"),
    bad("the other half", "id: must not contain a lone surrogate", id="a\udfffb"),
    bad("in the wrong order", "id: must not contain a lone surrogate", id="\udc00\ud800"),
    bad("in the type", "type: must not contain a lone surrogate", type="\ud800"),
    bad("in a parent", "parents[0]: must not contain a lone surrogate", parents=["\ud800"]),
    bad("in the data", "data: must not contain a lone surrogate", data=["\ud800"]),
    bad("in a key of the data", "data: must not contain a lone surrogate", data={"\ud800": 1}),
    raw("1e999", '{"event":"update","type":"a","id":"x","data":1e999}', BEYOND),
    raw("-1e999", '{"event":"update","type":"a","id":"x","data":[{"a":-1e999}]}', BEYOND),
    # row 17: the timestamp
    bad("O17 a date only", DATE, timestamp="2026-11-20"),
    bad("O17 nothing", DATE, timestamp=""),
    bad("O17 a number", DATE, timestamp=1763000000000),
    bad("O17 a truth", DATE, timestamp=False),
    bad("O17 without an offset", DATE, timestamp="2026-11-20T00:00:00"),
    bad("oplog's poison", DATE, timestamp="9999-12-31T23:59:59-23:59"),
    bad("before the first year", DATE, timestamp="0001-01-01T00:00:00+00:01"),
    bad("year 0", DATE, timestamp="0000-01-01T00:00:00Z"),
    bad("second 61", DATE, timestamp="2016-12-31T23:59:61Z"),
    bad("the 30th of February", DATE, timestamp="2026-02-30T00:00:00Z"),
    bad("hour 24", DATE, timestamp="2026-11-20T24:00:00Z"),
    bad("an offset of a day", DATE, timestamp="2026-11-20T00:00:00+24:00"),
    bad("Arabic digits", DATE, timestamp="\u0662\u0660\u0662\u0666-11-20T00:00:00Z"),
    bad("NUL in the timestamp", DATE, timestamp="2026-11-20T00:00:00Z\0"),
    bad("a long timestamp", DATE, timestamp="2" * 100_000),
    # row 19: no operation
    raw("O19 an empty body", "", "body: must be JSON"),
    raw("O19 blanks", " \n\t ", "body: must be JSON"),
    raw("O19 null", "null", "must be a JSON object"),
    raw("O19 a number", "7", "must be a JSON object"),
    raw("O19 a string", '"update"', "must be a JSON object"),
    raw("O19 trailing garbage", json.dumps(op()) + "x", "body: must be JSON"),
    raw("O19 a trailing comma", '{"id":"x",}', "body: must be JSON"),
    raw("O19 two objects", json.dumps(op()) * 2, "body: must be JSON"),
    raw("an empty array", "[]", "body: needs at least one operation"),
    raw("an array in an array", json.dumps([[op()]]), "ops[0]: must be a JSON object"),
    raw("null in an array", json.dumps([op(), None]), "ops[1]: must be a JSON object"),
    raw("the second is bad", json.dumps([op(), op("")]), "ops[1].id: must not be empty"),
    lines("no line", "", "body: needs at least one operation"),
    lines("blank lines", "\n \r\n\n", "body: needs at least one operation"),
    lines("a bad line", json.dumps(op()) + "\n{", "line 2: must be JSON"),
    lines("an array as a line", json.dumps([op()]), "line 1: must be a JSON object"),
    lines("an operation on two lines", '{"event":\n"update"}', "line 1: must be JSON"),
    lines("deep in a line", "[" * 10_000, "line 1: nested deeper than 32"),
    # limits
    large("an id of 513 bytes", "id: holds at most 512 bytes, got 513", id="x" * 513),
    large("an id of a megabyte", "id: holds at most 512 bytes", id="x" * 1_000_000),
    large("an id of 258 letters", "id: holds at most 512 bytes, got 516", id="\u00e9" * 258),
    large("a type of 129 bytes", "type: holds at most 128 bytes, got 129", type="t" * 129),
    large("65 parents", "parents: holds at most 64 entries, got 65", parents=["p"] * 65),
    large("a long parent", "parents[0]: holds at most 640 bytes", parents=["p" * 641]),
    large("33 tags", "tags: holds at most 32 entries, got 33", tags=["t"] * 33),
    large("a long tag", "tags[0]: holds at most 640 bytes", tags=["t" * 641]),
    large("33 changes", "changed: holds at most 32 entries, got 33", changed=["c"] * 33),
    large("300 KB", "one operation holds at most 65536 bytes, this one", data="x" * 300_000),
    Bad(
        "1,001 operations",
        json.dumps([op()] * 1001).encode(),
        "body: a request holds at most 1000 operations, got 1001",
        413,
        "too_large",
    ),
    Bad(
        "a megabyte and a byte",
        json.dumps(op()).encode().ljust(limits.REQUEST_BYTES_MAX + 1),
        "body: a request holds at most 1048576 bytes, this one 1048577",
        413,
        "too_large",
    ),
]


def refused(scene: Scene, request: PostRequest) -> Rejected:
    """Return the refusal, and check that nothing was written and no number was taken."""
    with pytest.raises(Rejected) as error:
        scene.ingester.accept(request)
    assert scene.log.head(FEED) == 0
    assert scene.log.read(FEED, 0) == []
    assert scene.claims.find(FEED, "key", now_ms=NOW) is None
    assert len(json.dumps(error.value.body())) < 2000
    return error.value


@pytest.mark.parametrize("each", REQUESTS, ids=lambda each: each.name)
@pytest.mark.parametrize("key", [None, "key"])
def test_bad_requests(scene: Scene, each: Bad, key: str | None) -> None:
    """Status, code and message; with and without an Idempotency-Key."""
    error = refused(scene, PostRequest(FEED, each.body, each.content_type, key))

    assert (error.status, error.code) == (each.status, each.code)
    assert str(error).startswith(each.says)


@pytest.mark.parametrize(
    ("feed", "status", "code"),
    [
        ("", 400, "invalid_feed"),
        ("Main", 400, "invalid_feed"),
        ("main#0", 400, "invalid_feed"),
        ("../main", 400, "invalid_feed"),
        ("main\n", 400, "invalid_feed"),
        ("x" * 64, 400, "invalid_feed"),
        ("x" * 63, 404, "unknown_feed"),
    ],
)
def test_bad_feeds(scene: Scene, feed: str, status: int, code: str) -> None:
    """Invalid names and unknown feeds are refused before the body is parsed."""
    error = refused(scene, PostRequest(feed, b"nothing", "text/plain"))

    assert (error.status, error.code) == (status, code)
    assert scene.log.head(feed) == 0


@pytest.mark.parametrize(
    "key", ["", "x" * 129, "\u00e9", "a\tb", "a\nb", "a\0b", "\x7f", "key\r\nX-Header: 1"]
)
def test_bad_idempotency_keys(scene: Scene, key: str) -> None:
    """Empty, too long, or not printable ASCII."""
    error = refused(scene, PostRequest(FEED, json.dumps(op()).encode(), JSON_TYPE, key))

    assert (error.status, error.code) == (400, "invalid_idempotency_key")
    assert error.rule == "must be 1 to 128 printable ASCII characters"


FINE: list[tuple[str, object, str]] = [
    ("O11 a charset", op(), "application/json; charset=utf-8"),
    ("O15 capitals", {"event": "UPDATE", "type": "VIDEO", "id": "x1"}, JSON_TYPE),
    ("O17 null timestamp", op(timestamp=None), JSON_TYPE),
    ("O18 unknown keys", op(ref="http://x", deep={"a": [1]}), JSON_TYPE),
    ("O18 keys in another case", {"Event": "update", "TYPE": "video", "Id": "x1"}, JSON_TYPE),
    ("no parents", op(parents=[]), JSON_TYPE),
    ("null parents", op(parents=None), JSON_TYPE),
]


@pytest.mark.parametrize(
    ("name", "operation", "content_type"), FINE, ids=[each[0] for each in FINE]
)
def test_strange_but_fine(scene: Scene, name: str, operation: object, content_type: str) -> None:
    """oplog accepts it, so Tidings does; the stored operation is the same."""
    scene.ingester.accept(PostRequest(FEED, json.dumps(operation).encode(), content_type))

    assert scene.log.read(FEED, 0)[0].lines == [line()]


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b'{"event":"update","type":"video","id":"x\xff1"}', "x\ufffd1"),
        (b'{"event":"update","type":"video","id":"a","id":"x1"}', "x1"),
        (b'{"event":"update","type":"video","id":" "}', " "),
        (b'{"event":"update","type":"video","id":"\\ud83d\\ude00"}', "\U0001f600"),
        (b'{"event":"update","type":"video","id":"' + b"x" * 512 + b'"}', "x" * 512),
    ],
)
def test_strange_ids(scene: Scene, body: bytes, kept: str) -> None:
    """Broken UTF-8 becomes U+FFFD, the last of a repeated key counts, a pair is one character."""
    scene.ingester.accept(PostRequest(FEED, body, JSON_TYPE))

    assert json.loads(scene.log.read(FEED, 0)[0].lines[0])["id"] == kept
