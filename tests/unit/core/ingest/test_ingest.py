"""Ingesting: a request becomes one page, or an error and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.fakes import MemoryOutbox
from tests.unit.core.scene import FEED, NOW, Scene, line, op, shown, unavailable
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.errors import InvalidOperation, KeyReused, OutsideKey, Rejected, Unavailable
from tidings.core.ingest.ingest import PostRequest, check_key
from tidings.core.ingest.outbox import ITEMS, OPERATIONS, Forwarder, OutboxMessage
from tidings.core.model.filters import Filter
from tidings.core.model.json_body import JSON_TYPE, NDJSON_TYPE
from tidings.core.settings.values import Resource
from tidings.core.triton.items import Items


def request(*operations: object, feed: str = FEED, key: str | None = None) -> PostRequest:
    return PostRequest(feed, json.dumps(operations).encode(), JSON_TYPE, key)


def test_O22_refused_operations_are_counted(scene: Scene) -> None:
    """One for a request; what names no feed, or no operations, is not among them."""
    wrong = (
        request(op("a"), op("")),
        PostRequest(FEED, b"{", JSON_TYPE),
        PostRequest(FEED, b"x" * (limits.REQUEST_BYTES_MAX + 1), JSON_TYPE),
        PostRequest(FEED, b"{}", "text/plain"),
        request(op("a"), feed="nope"),
        request(op("a"), key=""),
    )
    for each in wrong:
        with pytest.raises(Rejected):
            scene.ingester.accept(each)

    assert scene.counted == {"RequestsRejected": 6}
    assert scene.counters.totals(FEED, now_ms=NOW).refused == 3
    assert scene.counters.totals("nope", now_ms=NOW).refused == 0


def test_a_refusal_that_cannot_be_counted_is_still_one(scene: Scene) -> None:
    """The producer gets the error, even if a store is unavailable."""
    scene.counters.refuse = unavailable  # type: ignore[method-assign]
    with pytest.raises(InvalidOperation):
        scene.ingester.accept(request(op("")))


@pytest.mark.parametrize("key", [" ", "~", "a" * limits.IDEMPOTENCY_KEY_CHARS_MAX])
def test_what_is_a_key(key: str) -> None:
    """Printable ASCII."""
    assert check_key(key) == key


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


MINE, THEIRS = ["user/me"], ["user/them"]


class Poster:
    """Posts with a key that is bounded to *MINE*, or with an unbounded one."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._shown = shown(scene.key(Role.INGEST, bound=Filter(parents=frozenset(MINE))))
        self._unbounded = shown(scene.key(Role.INGEST))

    def bounded(self, *operations: dict[str, Any], key: str | None = None) -> list[str]:
        return self._post(operations, key, self._shown)

    def whole(self, *operations: dict[str, Any], key: str | None = None) -> list[str]:
        return self._post(operations, key, self._unbounded)

    def _post(self, operations: object, key: str | None, given: Credential | None) -> list[str]:
        body = json.dumps(operations).encode()
        return self.scene.ingester.accept(PostRequest(FEED, body, JSON_TYPE, key, given))


@pytest.mark.parametrize("projected", [True, False], ids=["in the state", "in the log alone"])
@pytest.mark.parametrize("event", ["delete", "update", "insert"])
def test_what_lies_outside_is_not_touched(scene: Scene, event: str, projected: bool) -> None:
    """A parent within the bound in the operation gives no right to the object; nothing is
    written."""
    poster = Poster(scene)
    poster.whole(op("theirs", parents=THEIRS))
    if projected:
        scene.project()

    with pytest.raises(OutsideKey, match="matches the parents of the key") as refused:
        poster.bounded(op("mine", parents=MINE), op("theirs", event, parents=MINE))
    assert (refused.value.status, refused.value.field) == (403, "operations[1]")
    assert scene.log.head(FEED) == 1


def test_what_lies_within_is(scene: Scene) -> None:
    """New objects, those within the bound, those that came into it, and deleted ones may be
    posted."""
    poster = Poster(scene)
    poster.whole(op("shared", parents=MINE + THEIRS), op("gone", parents=THEIRS))
    poster.whole(op("gone", "delete", parents=THEIRS), op("came", parents=THEIRS))
    scene.project()
    poster.whole(op("came", parents=MINE))

    for name in ("new", "shared", "gone", "came"):
        poster.bounded(op(name, parents=MINE))
        poster.bounded(op(name, "delete", parents=MINE))


def test_what_is_appended_meanwhile_counts(scene: Scene) -> None:
    """If a page came after the check, the taken page number is filled and the post is refused."""
    poster = Poster(scene)
    take = scene.log.take

    def overtaken(feed: str, operations: int = 0) -> int:
        scene.log.take = take  # type: ignore[method-assign]
        poster.whole(op("x", parents=THEIRS))
        return take(feed, operations)

    scene.log.take = overtaken  # type: ignore[method-assign]
    with pytest.raises(OutsideKey):
        poster.bounded(op("x", "delete", parents=MINE))
    assert [page.lines for page in scene.log.read(FEED, 1)] == [[]]
    poster.whole(op("y"))


def test_a_writer_in_flight_is_waited_for_and_not_for_ever(scene: Scene) -> None:
    """Pages before the own page must be known; if they are not, the client has to retry."""
    poster = Poster(scene)
    scene.log.take(FEED)
    with pytest.raises(Unavailable):
        poster.bounded(op("x", parents=MINE))
    assert scene.waits == [limits.BOUND_POLL_MS] * limits.BOUND_POLLS_MAX
    assert sum(scene.waits) < limits.HOLE_GRACE_MS


def test_a_retry_is_the_same_whatever_became_of_the_object(scene: Scene) -> None:
    """It was appended within the bound, and gets the same answer again."""
    poster = Poster(scene)
    first = poster.bounded(op("x", parents=MINE), key="k")
    poster.whole(op("x", parents=THEIRS))
    assert poster.bounded(op("x", parents=MINE), key="k") == first
    with pytest.raises(OutsideKey):
        poster.bounded(op("x", parents=MINE), key="another")


def test_an_idempotency_key_belongs_to_who_gave_it(scene: Scene) -> None:
    """A client that uses another client's key first does not affect that client's posts."""
    poster, other = Poster(scene), Poster(scene)
    poster.bounded(op("squatted", parents=MINE), key="order-1")

    others = [other.bounded(op("x", parents=MINE), key="order-1")]
    others.append(poster.whole(op("y"), key="order-1"))
    assert len(scene.log.read(FEED, 0)) == 3
    assert others == [
        other.bounded(op("x", parents=MINE), key="order-1"),
        poster.whole(op("y"), key="order-1"),
    ]
    with pytest.raises(KeyReused) as refused:
        poster.bounded(op("else", parents=MINE), key="order-1")
    assert refused.value.value == "order-1"


def message(name: str, *operations: Mapping[str, object], kind: str = OPERATIONS) -> OutboxMessage:
    return OutboxMessage(name, kind, "\n".join(map(json.dumps, operations)))


def forwarder(scene: Scene, outbox: MemoryOutbox) -> Forwarder:
    return Forwarder(
        outbox=outbox,
        appender=scene.appender,
        lines={OPERATIONS: scene.ingester.lines, ITEMS: Items(scene.profiles)},
        runtime=scene.runtime,
    )


def logged(scene: Scene) -> list[str]:
    return [
        json.loads(line)["id"] for page in scene.reader.read(FEED, 0).pages for line in page.lines
    ]


def test_messages_are_appended_in_their_order(scene: Scene) -> None:
    """Each as one page, operations and items alike; then nothing is left."""
    vm = Resource("vm", ("nic",), "/vms")
    scene.profiles.save(FEED, replace(scene.profiles.profile(FEED), resources=(vm,), max_age_s=60))
    item = {"changeKind": {"resource": "vm", "subResources": ["nic"]}, "changedResourceId": "c"}
    outbox = MemoryOutbox()
    outbox.leave(FEED, message("2", item, kind=ITEMS))
    outbox.leave(FEED, message("1", op("a"), op("b")))
    outbox.leave("other", message("1", op("z")))
    assert forwarder(scene, outbox).run(FEED) == 2
    assert logged(scene) == ["a", "b", "c"]
    assert outbox.pending(FEED) == [] and len(outbox.pending("other")) == 1


def test_F43_a_crash_behind_the_append_repeats_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is still in the outbox, is forwarded again, and is in the log once."""
    outbox = MemoryOutbox()
    outbox.leave(FEED, message("1", op("a")))
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "done", unavailable)
        with pytest.raises(Unavailable):
            forwarder(scene, outbox).run(FEED)
    assert len(outbox.pending(FEED)) == 1
    forwarder(scene, outbox).run(FEED)
    assert logged(scene) == ["a"]


def test_a_message_that_is_refused_is_put_aside(scene: Scene) -> None:
    """It is stored with the reason; the messages after it are appended."""
    outbox = MemoryOutbox()
    outbox.leave(FEED, message("1", {"event": "gone"}))
    outbox.leave(FEED, message("2", op("b")))
    forwarder(scene, outbox).run(FEED)
    assert logged(scene) == ["b"]
    assert outbox.aside == {(FEED, "1"): "line 1: event: must be one of insert, update, delete"}
    assert scene.counted["LettersRefused"] == 1
