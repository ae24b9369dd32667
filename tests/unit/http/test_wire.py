"""Declared fields, what `Accept` allows, and the answers of endpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import pytest

from tests.unit.core.replication.relay_scene import Chain, Cluster, chained
from tests.unit.core.scene import FEED
from tidings.core.auth.guard import ALL, Allowed, Credential
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.errors import InvalidSetting, Rejected
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import FixedFeeds
from tidings.core.replication.relay import Copy
from tidings.http import wire
from tidings.http.endpoints.erasures import ErasureSummary
from tidings.http.endpoints.replication import RelayReport
from tidings.http.request import Request, accepts_gzip, wants_links, wants_page
from tidings.http.routes import DECLARED
from tidings.http.streams.sse import accepts_events, accepts_lines
from tidings.http.wire import Call, Given, Kind

BODIES = [kind for each in DECLARED for kind in each.declared.values() if "body" in kind.parameters]


class Sample(Given):
    name: Annotated[str, Kind(wire.TEXT, wire.parse_text)]
    switch: wire.Switch = False
    limit: Annotated[int, wire.integer(1, 9)] = 5
    secret: Annotated[str, Kind(wire.TEXT, wire.parse_text, shown=False)] | None = None


def test_a_field_that_is_not_given_has_its_default() -> None:
    made = Sample.parse({"name": "a", "limit": "7"}, InvalidSetting, "fields")
    assert (made.name, made.switch, made.limit, made.secret) == ("a", False, 7, None)
    assert made.sent == {"name": "a", "limit": "7"}


@pytest.mark.parametrize("route", BODIES, ids=lambda each: each.name)
def test_no_field_of_a_body_holds_a_lone_surrogate(route: wire.Declared) -> None:
    """SQLite and DynamoDB refuse such a text, after other fields may have been written."""
    body = route.parameters["body"]
    for name in wire.fields_of(body):
        for value in ("\ud800", ["\ud800"], {"a": "\ud800"}):
            required = {each: "x" for each in wire.fields_of(body)}
            with pytest.raises(Rejected):
                body.parse({**required, name: value}, InvalidSetting, "fields")


@pytest.mark.parametrize(
    ("accept", "events", "lines"),
    [
        ("", False, False),
        ("*/*", True, False),
        ("text/*", True, False),
        ("TEXT/Event-Stream; charset=utf-8", True, False),
        ("text/event-stream;q=0", False, False),
        ("text/event-stream; Q=0.000", False, False),
        ("text/event-stream;q=0, */*", False, False),
        ("*/*, text/event-stream;q=0", False, False),
        ("text/*;q=0, */*", False, False),
        ("text/event-stream;q=0.1, */*;q=0", True, False),
        ("*/*;q=0", False, False),
        ("application/x-ndjson", False, True),
        ("application/x-ndjson;q=0", False, False),
        ("application/x-ndjson, text/event-stream", True, True),
        ("application/x-ndjson, */*;q=0.1", False, True),
        ("application/x-ndjson, text/event-stream;q=0", False, True),
        ("application/x-ndjson;q=0.5, text/event-stream", True, True),
        ("text/html, application/xhtml+xml, */*;q=0.8", True, False),
        ("text/event-stream;charset=utf-8;q=0", False, False),
        ("text/event-stream;q=nonsense", True, False),
        (",,;q=0,", False, False),
    ],
)
def test_events_or_lines(accept: str, events: bool, lines: bool) -> None:
    """A weight of 0 refuses; the most specific range counts; the heavier format is sent."""
    assert (accepts_events(accept), accepts_lines(accept)) == (events, lines)


@pytest.mark.parametrize(
    ("accept", "links"),
    [
        ("application/json", True),
        ("application/json;q=0", False),
        ("application/json, text/event-stream", False),
        ("application/json, text/event-stream;q=0", True),
        ("application/json, text/event-stream;q=0.5", True),
        ("*/*", False),
    ],
)
def test_links_are_asked_for_by_name(accept: str, links: bool) -> None:
    """A client that accepts everything gets events."""
    assert wants_links("GET", "/", {"accept": accept}) == links


@pytest.mark.parametrize(
    ("accept", "accepted"),
    [
        ("gzip", True),
        ("deflate, X-GZIP;q=0.1", True),
        ("*", True),
        ("gzip, identity", True),
        ("gzip;q=0, identity", False),
        ("gzip;q=0, *", False),
        ("gzip;q=0.5, identity", False),
        ("br, not-gzip", False),
        ("*;q=0", False),
        ("", False),
    ],
)
def test_gzip_is_sent_if_it_is_accepted(accept: str, accepted: bool) -> None:
    """Weights count, and a plain answer may be preferred."""
    assert accepts_gzip({"accept-encoding": accept}) is accepted


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8", True),
        ("text/html, image/jxr, */*", True),
        ("text/html", True),
        ("text/html,application/xhtml+xml", True),
        ("text/html;q=0.1", True),
        ("text/html;q=0.9, application/json", False),
        ("text/html;q=0.9, application/json;q=0.9, */*;q=0.1", False),
        ("text/html;q=0.5, */*", False),
        ("text/html, application/x-ndjson", False),
        ("text/html, text/event-stream", False),
        ("text/html;q=0, */*", False),
        ("text/event-stream", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_9_8_a_page_is_for_browsers(accept: str, page: bool) -> None:
    """The root is a page only if a client prefers HTML; no other path and method is."""
    headers = {"accept": accept}
    assert wants_page("GET", "/", headers) == wants_page("HEAD", "/", headers) == page
    assert not wants_page("POST", "/", headers) and not wants_page("GET", "/ops", headers)


def test_no_field_of_a_chained_feed_is_left_out() -> None:
    """A field that is not declared would not be sent."""
    copying = chained()
    copying.node.note(failures=3, attempt_ms=5_000, error="it broke", copy=Copy(7, bucket=16))
    yielded = chained().master
    yielded.act("yield", to="https://other.example/feeds/main")
    for node in (Chain().node, chained().node, copying.node, yielded, Cluster(2).nodes[0]):
        document = node.control.reporter.document(FEED)
        assert RelayReport(**document).document() == document


KEY = "tdk_3k2m9c0q8xw1_" + "s" * 32
RECORD = Erasure(Place(4, 0, 9).encode(), "user", "ann", "key 3k2m9c0q8xw1", "request 7", 9000)


@pytest.mark.parametrize(
    ("allowed", "given", "expected"),
    [
        (ALL, None, "anonymous"),
        (ALL, Credential("an ingest password", "ann"), "password"),
        (Allowed(principal="3k2m9c0q8xw1"), Credential(KEY, "ann"), "key 3k2m9c0q8xw1"),
        (Allowed(principal="0af7"), Credential("eyJ", bearer=True), "token 0af7"),
    ],
)
def test_22_5_the_caller_is_named_without_a_secret(
    allowed: Allowed, given: Credential | None, expected: str
) -> None:
    """P22.5: nor by the user name, which anyone may choose."""
    call = Call(Request("POST", "/", ""), FixedFeeds(frozenset()), 202)
    call.allowed, call.credential = allowed, given
    assert call.caller == expected


@pytest.mark.parametrize(
    ("phase", "final", "state"),
    [
        *((each, False, "pending") for each in list(Phase)[:6]),
        (Phase.KEPT, False, "erased"),
        (Phase.LOG, True, "erased"),
        (Phase.DONE, True, "done"),
    ],
)
def test_22_5_the_state_follows_from_the_phase(phase: Phase, final: bool, state: str) -> None:
    """P22.5: while the entry itself is erased, the erasure stays `erased`."""
    found = ErasureSummary.of(replace(RECORD, phase=phase, final=final, texts=1))
    assert (found.state, found.found) == (state, None if state == "pending" else True)


def test_22_5_the_id_is_null_once_it_is_erased() -> None:
    """P22.5: the rest of the record stays."""
    done = replace(RECORD, object_id="", phase=Phase.DONE, final=True, done_ms=10_000)
    assert ErasureSummary.of(done).document() == {
        "id": RECORD.id,
        "object": {"type": "user", "id": None},
        "state": "done",
        "found": False,
        "by": "key 3k2m9c0q8xw1",
        "reason": "request 7",
        "parents": False,
        "before": None,
        "requested_at": "1970-01-01T00:00:09Z",
        "erased_at": "1970-01-01T00:00:10Z",
        "until": "1970-01-01T00:00:00Z",
    }
