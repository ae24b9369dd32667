"""Rows O1 to O20 and 63 to 65: paths, methods, posts, passwords, and `/status`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.compat.oplog.feed import Feed, ask, op, said
from tests.compat.oplog.wire import JSON, PATIENCE_S, STREAM, Answer, Connection, Listener, until
from tests.hosts import wanted
from tests.unit.client.command import tidings
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


READ, INGEST, WRONG = "read: password", "ingest password", "a wrong password"


@dataclass(frozen=True)
class Guarded:
    """A host and its feed with both passwords, and the folder with all its files."""

    host: Server
    folder: Path

    def post(self, password: str | None, kind: str = JSON, user: str = "") -> Answer:
        headers = {"content-type": kind, **basic(password, user)}
        return ask(self.host.port, "POST", "/", headers, json.dumps(op()).encode())

    def read(self, password: str | None, user: str = "", accept: str = STREAM) -> Answer:
        """Return the answer to a GET; leave a stream at once."""
        headers = {"accept": accept, **basic(password, user)}
        connection = Connection(self.host.port, "GET", "/", headers.items())
        connection.close()
        return connection.answer

    def subscribe(self, **fields: str) -> Any:
        with connect(self.host.ws_url, open_timeout=PATIENCE_S) as socket:
            socket.send(json.dumps({"action": "subscribe", **fields}))
            return json.loads(socket.recv(PATIENCE_S))

    def feed(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of the operator's command."""
        done = tidings("feed", *arguments, *self.host.locator, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


def basic(password: str | None, user: str = "") -> dict[str, str]:
    if password is None:
        return {}
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    secrets, data = tmp_path_factory.mktemp("secrets"), tmp_path_factory.mktemp("data")
    options = []
    for role, password in (("read", READ), ("ingest", INGEST)):
        file = secrets / role
        file.write_text(f"{password}\n")
        options += [f"--{role}-password-file", str(file)]
    with wanted(request.config)(*options, data=data) as host:
        yield Guarded(host, data)


@pytest.mark.parametrize("user", ["", "anybody"])
def test_O05_any_user_with_the_right_password(guarded: Guarded, user: str) -> None:
    """Posts and reads."""
    assert guarded.post(INGEST, user=user).status == 204
    assert guarded.read(READ, user=user).status == 200


@pytest.mark.parametrize("password", [None, WRONG, ""])
def test_O05_no_password_or_a_wrong_one(guarded: Guarded, password: str | None) -> None:
    """401 to a producer and to a consumer."""
    posted = guarded.post(password)
    assert (posted.status, posted.error["code"]) == (401, "wrong_password")
    assert guarded.read(password).status == 401


def test_O06_one_is_not_valid_for_the_other(guarded: Guarded) -> None:
    """A client that may read may not post."""
    assert guarded.post(READ).status == 401
    assert guarded.read(INGEST).status == 401


def test_O07_any_case_of_the_scheme_and_a_challenge(guarded: Guarded) -> None:
    """oplog accepted `Basic` alone and did not challenge: see PROTOCOL.md."""
    lower = basic(READ)["authorization"].replace("Basic", "basic")
    headers = [("accept", STREAM), ("authorization", lower)]
    connection = Connection(guarded.host.port, "GET", "/ops", headers)
    connection.close()
    assert connection.answer.status == 200
    assert guarded.read(None).headers["www-authenticate"].startswith('Basic realm="tidings"')


def test_O08_status_needs_no_password(guarded: Guarded) -> None:
    """An operator's probe knows none."""
    assert ask(guarded.host.port, "GET", "/status").status == 200


def test_O12_the_password_before_the_content_type(guarded: Guarded) -> None:
    """A wrong one of both is 401."""
    assert guarded.post(WRONG, kind="text/plain").status == 401
    assert guarded.post(INGEST, kind="text/plain").status == 415


def test_O26_the_accepted_type_before_the_password(guarded: Guarded) -> None:
    """Two wrong ones are 406; `text/html` is the page."""
    assert guarded.read(WRONG, accept="image/png").status == 406


def test_a_websocket_says_the_password_when_it_subscribes(guarded: Guarded) -> None:
    """A wrong one is an error of the protocol, a right one is confirmed."""
    assert guarded.subscribe(password=WRONG)["error"]["code"] == "wrong_password"
    assert guarded.subscribe()["error"]["code"] == "wrong_password"
    assert guarded.subscribe(password=READ)["reply"] == "subscribed"


def test_passwords_rotate_while_everything_runs(guarded: Guarded) -> None:
    """By the operator's command: within seconds the new one holds, the old one as long as kept."""
    new = guarded.feed("password", "ingest", "--generate", "--keep-old").strip()
    until(lambda: guarded.post(new).status == 204)
    assert guarded.post(INGEST).status == 204
    guarded.feed("password", "ingest", "--remove-old")
    until(lambda: guarded.post(INGEST).status == 401)
    assert guarded.post(new).status == 204
    guarded.feed("password", "ingest", stdin=INGEST)
    until(lambda: guarded.post(INGEST).status == 204)


def test_no_password_is_in_anything_the_host_writes(guarded: Guarded) -> None:
    """After right and wrong ones on every transport: not in a log, and in the store only hashed."""
    for password in (READ, INGEST, WRONG):
        guarded.post(password)
        guarded.read(password)
        guarded.subscribe(password=password)
        guarded.subscribe(password=f'{password}", "action": "x')
    written = b"".join(path.read_bytes() for path in guarded.folder.rglob("*") if path.is_file())
    written += guarded.host.errors().encode()
    assert b"scrypt$" in written
    for password in (READ, INGEST, WRONG):
        header = basic(password)["authorization"].removeprefix("Basic ")
        assert password.encode() not in written and header.encode() not in written
    assert "scrypt" not in guarded.feed("show") + guarded.feed("show", "--json")


TEN = [
    "status",
    "events_received",
    "events_sent",
    "events_ingested",
    "events_error",
    "events_discarded",
    "queue_size",
    "queue_max_size",
    "clients",
    "connections",
]


def status(feed: Feed, **wanted: int) -> bool:
    found = feed.status()
    return {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/status", "/feeds/{}/status"])
def test_O04_status_is_only_for_get(feed: Feed, method: str, path: str) -> None:
    """Anything else is 405, and says what is allowed."""
    answer = ask(feed.port, method, path.format(feed.name))

    assert answer.status == 405
    assert "GET" in answer.headers["allow"]


def test_O04_head_is_answered_as_get(feed: Feed) -> None:
    """An extension: oplog said 405."""
    answer = ask(feed.port, "HEAD", "/status")

    assert (answer.status, answer.body) == (200, b"")


def test_O63_status_is_one_line_of_json(feed: Feed) -> None:
    """Status and nine counters first, in oplog's order; `/status` is the feed `main`."""
    answer = ask(feed.port, "GET", "/status")
    found = json.loads(answer.body)

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert b"\n" not in answer.body
    assert list(found)[:10] == TEN
    assert (found["status"], found["feed"]) == ("OK", "main")
    assert feed.name in found["feeds"]


def test_O63_the_counters_mean_what_they_meant(feed: Feed) -> None:
    """Received, in the log and the state, refused; the events sent to one consumer."""
    feed.post(op("a"), op("b"))
    feed.post(op("c"))
    assert feed.send(b'{"event":"insert"}').status == 400
    until(lambda: status(feed, events_received=3, events_ingested=3, events_error=1))
    found = feed.status()
    assert found["head"] == found["frontier"]["page"] == 2

    assert [block.name for block in feed.copied()][0::4] == ["reset", "live"]
    until(lambda: status(feed, events_sent=5, connections=1, clients=0))
    assert [feed.status()[name] for name in ("events_discarded", "queue_size")] == [0, 0]


def test_O64_clients_go_up_and_come_back(feed: Feed) -> None:
    """With each that connects and each that leaves; connections only ever grow."""
    assert status(feed, clients=0, connections=0)
    with feed.listening():
        until(lambda: status(feed, clients=1, connections=1))
        with feed.listening():
            until(lambda: status(feed, clients=2, connections=2))
        until(lambda: status(feed, clients=1, connections=2))
    until(lambda: status(feed, clients=0, connections=2))


def test_O64_who_is_refused_does_not_count(feed: Feed) -> None:
    """Neither as a connection nor as an error."""
    refused = [
        ask(feed.port, "GET", feed.path, {"accept": "application/json"}).status,
        ask(feed.port, "GET", feed.path, {"accept": STREAM, "last-event-id": "abcd"}).status,
        ask(feed.port, "GET", feed.path + "?types=%00", {"accept": STREAM}).status,
    ]
    with feed.listening():
        until(lambda: status(feed, clients=1))

    assert refused == [406, 400, 400]
    until(lambda: status(feed, clients=0, connections=1, events_error=0))


def test_O65_nothing_of_the_machine_is_told(feed: Feed) -> None:
    """No command line, no environment, no memory, no names of tables, no stack."""
    text = ask(feed.port, "GET", "/status").body.decode()

    places = ["feed", "feeds", "head", "frontier", "floor", "followers"]
    assert list(json.loads(text)) == [*TEN, *places, "time", "source", "generation"]
    assert not re.search(r"cmdline|memstats|python|password|TIDINGS|AWS|tidings-|/home|/tmp", text)
