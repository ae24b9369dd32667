"""What readers receive of an erasure, and of an entry that was erased."""

from __future__ import annotations

import json

import pytest

from tidings.core.catchup.matching import PageSlice, page_events, page_part, row_event
from tidings.core.changeagent.changes import entry_of
from tidings.core.errors import InvalidConsumer, InvalidFilter
from tidings.core.model import filters
from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, encoder
from tidings.core.model.events import Event, content_of, of_line, to_sse
from tidings.core.model.filters import EVERYTHING, Filter, within
from tidings.core.model.operations import (
    ERASED_MARK,
    ERASURE_MARK,
    data_of,
    is_erased,
    is_erasure,
    line_from,
    parse_line,
    without_details,
)
from tidings.core.model.pages import Page, encode
from tidings.core.state.rows import Row
from tidings.core.triton.items import item_of

PLAIN = line_from(
    {"event": "delete", "type": "user", "id": 'a,"data":{', "parents": ["team/1"]}, now_ms=0
)
DETAILS = '{"by":"key 3k2m9c0q8xw1","reason":"request 7"}'
ERASURE = f'{PLAIN[:-1]},"data":{DETAILS}{ERASURE_MARK}'
ERASED = f"{line_from({'event': 'delete', 'type': 'user', 'id': 'erased:1f'}, now_ms=0)[:-1]}" + (
    ERASED_MARK
)
FORGED = line_from(
    {"event": "update", "type": "user", "id": "b", "data": {"a": 1, "erase": True}}, now_ms=0
)
ASKED = Filter(erasures=True)


def test_22_4_an_erasure_is_a_delete_without_details() -> None:
    """P22.4: other consumers receive the line as if the object had been deleted."""
    assert is_erasure(ERASURE) and not is_erasure(PLAIN)
    assert without_details(ERASURE) == PLAIN and without_details(PLAIN) is PLAIN
    assert content_of(ERASURE) == ("delete", data_of(PLAIN))


def test_22_4_a_consumer_that_asked_receives_the_details() -> None:
    """P22.4: the name is `erase`, and the mark of the log is not in the data."""
    name, data = content_of(ERASURE, erasures=True)
    assert name == "erase"
    assert json.loads(data) == {**json.loads(data_of(PLAIN)), "data": json.loads(DETAILS)}


@pytest.mark.parametrize("erasures", [True, False])
@pytest.mark.parametrize("line", [PLAIN, ERASED, FORGED])
def test_other_operations_stay_as_they_are(line: str, erasures: bool) -> None:
    """Operations with data that ends like the mark, and erased ones (P22.3), are also the same."""
    assert content_of(line, erasures=erasures) == (parse_line(line).event, data_of(line))
    assert is_erased(line) == (line == ERASED)


@pytest.mark.parametrize("wanted", [EVERYTHING, ASKED, Filter(types=frozenset({"user"}))])
def test_22_4_blocks_and_events_agree(wanted: Filter) -> None:
    """P22.4: on the fast path too, where the blocks of a page are made without events."""
    page = Page(7, encode([ERASURE, FORGED, ERASED, PLAIN]), "", 1000)
    part, events = page_part(page, wanted), list(page_events(page, wanted))
    assert part.sse() == "".join(map(to_sse, events))
    assert list(part.events()) == events
    names = [event.name for event in events]
    assert names == ["erase" if wanted.erasures else "delete", "update", "delete", "delete"]
    assert ("request 7" in part.sse()) == wanted.erasures
    without = Page(8, encode([FORGED, PLAIN]), "", 1000)
    assert PageSlice(without).sse() == "".join(map(to_sse, PageSlice(without).events()))


def test_22_4_rows_of_a_copy() -> None:
    """P22.4: the row of an erased object, in a copy of the changes since a time."""
    row = Row("user/a", 7, 1, 1000, ERASURE, expires_ms=2000)
    for wanted in (EVERYTHING, Filter(types=frozenset({"user"}))):
        assert row_event("c", row, wanted, changed=True) == Event("c", "delete", data_of(PLAIN))
    asked = row_event("c", row, ASKED, changed=True)
    assert asked == Event("c", *content_of(ERASURE, erasures=True))
    left = row_event("c", row, Filter(parents=frozenset({"x"}), leave=True), changed=True)
    assert left == Event("c", "leave", data_of(PLAIN))
    assert row_event("c", row, Filter(types=frozenset({"x"})), changed=True) is None


def test_a_listener_and_a_list_of_changes_show_no_details() -> None:
    """Neither can ask for them."""
    assert "reason" not in item_of(ERASURE, parse_line(ERASURE), 0)
    shown = json.loads(entry_of(ERASURE, number=1, at_ms=0))
    assert shown["data"] == json.loads(PLAIN)


def test_6_12_formats_of_an_erasure() -> None:
    """P6.11, P6.12: CloudEvents name it, and Debezium's op is `d`."""
    event = of_line("00000001000000000a", 2, ERASURE, erasures=True)
    cloud = json.loads(encoder(CLOUDEVENTS, "main", lambda: 0)(event))
    assert (cloud["type"], cloud["data"]["data"]) == ("tidings.erase", json.loads(DETAILS))
    change = json.loads(encoder(DEBEZIUM, "main", lambda: 0)(event))
    assert (change["op"], change["after"], change["source"]["event"]) == ("d", None, "erase")


def test_22_4_the_filter_carries_the_request() -> None:
    """P22.4: in a query and in JSON; a bound of a key does not remove it."""
    assert filters.from_query({"erasures": "true"}) == ASKED
    assert filters.from_query({"erasures": ""}) == EVERYTHING
    assert ASKED.is_everything and ASKED != EVERYTHING
    assert within(ASKED, Filter(types=frozenset({"a"}))).erasures
    with pytest.raises(InvalidFilter, match="true or false"):
        filters.from_query({"erasures": "yes"})
    assert filters.of_consumer({"erasures": True}, InvalidConsumer) == ASKED
    with pytest.raises(InvalidConsumer, match="true or false"):
        filters.of_consumer({"erasures": "true"}, InvalidConsumer)
