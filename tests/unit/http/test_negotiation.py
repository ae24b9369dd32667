"""What `Accept` allows, by its weights and wildcards."""

from __future__ import annotations

import pytest

from tidings.http.request import accepts_gzip, wants_links, wants_page
from tidings.http.streams.sse import accepts_events, accepts_lines


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
