"""Envelopes: an event as CloudEvents, as a change event of Debezium, and as our own JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

import jsonschema_rs
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from tidings.core.errors import InvalidFilter
from tidings.core.model import envelopes
from tidings.core.model.cursors import Replication
from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, FORMATS, TIDINGS
from tidings.core.model.events import (
    NO_OPTIONS,
    Event,
    EventOptions,
    leave_of,
    of_line,
    redacted_leave_of,
    to_sse,
)
from tidings.core.model.operations import line_from
from tidings.http.schemas import schema_document

NOW_MS = 1_795_600_000_000
TRACE = f"00-{'0af7' * 8}-{'b7ad' * 4}-01"
RAW = {"type": "video", "id": "x/32", "parents": ["user/ann"], "data": {"n": [1, None]}}
RESET, LIVE = Event("1", "reset", ""), Event("6915f0f00000000003000000", "live", "")
PREFIX = "6915f0f00000000003"
CURSOR = Replication(0, 3, 7, tombstones=False).encode()


def operation(event: str = "update", trace: str = "", slot: int = 0, **fields: Any) -> Event:
    raw = {"event": event, "timestamp": "2025-11-13T14:53:36.5Z", **RAW, **fields}
    return of_line(PREFIX, slot, line_from(raw, now_ms=0), trace)


def row(event: str = "insert", **fields: Any) -> Event:
    return operation(event, **fields)._replace(id=CURSOR)


ALL = (
    *(operation(name) for name in ("insert", "update", "delete")),
    operation(trace=TRACE),
    leave_of(operation()),
    redacted_leave_of(operation()),
    row(),
    row("delete"),
    RESET,
    LIVE,
)


def enveloped(name: str, event: Event) -> dict[str, Any]:
    """Return *event* in the format, checked against its schema."""
    line = envelopes.encoder(name, "main", lambda: NOW_MS)(event)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    jsonschema_rs.validate(schema(name), found)
    return found


def schema(name: str) -> dict[str, Any]:
    return schema_document(name) or {"not": {}}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "event", ALL, ids=lambda each: f"{each.name}-{each.id[:1]}{each.trace[:2]}"
)
def test_the_schema_of_a_format_holds_for_every_kind_of_event(name: str, event: Event) -> None:
    """It refuses unknown fields, so that a new field has to be described."""
    found = enveloped(name, event)

    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema(name), {**found, "more": 1})


@pytest.mark.parametrize("event", ALL)
def test_the_sdk_of_cloudevents_reads_what_is_told(event: Event) -> None:
    """It checks the names, the types and the required attributes of CloudEvents 1.0."""
    text = envelopes.encoder(CLOUDEVENTS, "main", lambda: NOW_MS)(event)
    read = JSONFormat().read(CloudEvent, text)

    assert read.get_source() == "/feeds/main"
    assert read.get_type() == f"tidings.{event.name}"
    assert read.get_extension("cursor") == event.id
    assert read.get_extension("traceparent") == (event.trace or None)
    assert read.get_data() == (json.loads(event.data) if event.data else None)
    if "timestamp" in event.data:
        assert read.get_time() == datetime(2025, 11, 13, 14, 53, 36, 500_000, UTC)
        assert read.get_subject() == "video/x/32"
        assert read.get_datacontenttype() == "application/json"


def test_the_id_of_a_cloudevent_names_one_event() -> None:
    """An operation's again and again the same; rows of one cursor have their own."""
    clock = count(NOW_MS)
    encode = envelopes.encoder(CLOUDEVENTS, "main", lambda: next(clock))

    def name(event: Event) -> str:
        return str(json.loads(encode(event))["id"])

    assert name(operation()) == name(operation()) == operation().id
    rows = [row(), row(id="y"), row("delete"), row(data=2)]
    assert len({name(each) for each in rows}) == 4 and name(row()) == name(row())
    assert name(RESET) != name(RESET), "a consumer that drops repeats must not miss the second"


def test_sequences_sort_as_the_log_does() -> None:
    """They sort as text by page, then slot; the seconds of a page need not ascend."""
    places = [("6915f0f0", 3, 9), ("6915f0f0", 3, 10), ("6915f0ef", 4, 0), ("6915f0ef", 255, 1)]
    ids = [f"{seconds}{page:010x}{slot:06x}" for seconds, page, slot in places]
    found = [enveloped(CLOUDEVENTS, operation()._replace(id=each))["sequence"] for each in ids]

    assert found == sorted(found) and len({*found}) == 4
    assert "sequence" not in enveloped(CLOUDEVENTS, row())


@pytest.mark.parametrize(
    ("event", "op", "before", "after"),
    [
        (operation("insert"), "c", False, True),
        (operation("update"), "u", False, True),
        (operation("delete"), "d", True, False),
        (leave_of(operation()), "d", True, False),
        (redacted_leave_of(operation()), "d", True, False),
        (row(), "r", False, True),
        (row("delete"), "d", True, False),
        (RESET, "t", False, False),
        (LIVE, "m", False, False),
    ],
)
def test_a_change_event_of_debezium(event: Event, op: str, before: bool, after: bool) -> None:
    """The operation is where a consumer of Debezium expects the row."""
    found = enveloped(DEBEZIUM, event)
    data = json.loads(event.data or "null")

    assert found["op"] == op
    assert found["before"] == (data if before else None)
    assert found["after"] == (data if after else None)
    assert found["ts_ms"] == NOW_MS and found["transaction"] is None
    assert found["source"]["cursor"] == event.id
    assert found["source"]["snapshot"] == ("true" if event.id == CURSOR else "false")


def test_where_a_change_event_comes_from() -> None:
    """The table is the type, the time is the operation's, the sequence its place."""
    source = enveloped(DEBEZIUM, operation(trace=TRACE))["source"]

    assert source.pop("version")
    assert source == {
        "connector": "tidings",
        "name": "main",
        "ts_ms": 1_763_045_616_500,
        "snapshot": "false",
        "db": "main",
        "table": "video",
        "sequence": "0000000003000000",
        "cursor": f"{PREFIX}000000",
        "event": "update",
        "traceparent": TRACE,
    }


class Flattened:
    """A table as a consumer of Debezium keeps one: by key, as `ExtractNewRecordState` unwraps
    events.

    `c`, `u` and `r` write the row `after`, `d` deletes by the key in `before`, `t` empties it.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Any] = {}

    def take(self, event: dict[str, Any]) -> None:
        match event["op"]:
            case "c" | "u" | "r":
                row = event["after"]
                assert row["type"] == event["source"]["table"]
                self.rows[row["type"], row["id"]] = row.get("data")
            case "d":
                self.rows.pop((event["before"]["type"], event["before"]["id"]), None)
            case "t":
                self.rows.clear()
            case other:
                assert other == "m" and event["message"]["prefix"] == "live"


@given(
    st.lists(
        st.one_of(
            st.just(RESET),
            st.just(LIVE),
            st.builds(
                operation,
                st.sampled_from(["insert", "update", "delete"]),
                id=st.sampled_from(["a", "b", "\x85\u2028"]),
                data=st.integers(0, 9),
            ),
            st.builds(row, id=st.sampled_from(["a", "b"]), data=st.integers(0, 9)),
        )
    )
)
def test_a_consumer_of_debezium_has_what_one_of_ours_has(stream: list[Event]) -> None:
    """Copies, changes, deletions and resets in any order lead to the same objects."""
    table, ours = Flattened(), dict[tuple[str, str], Any]()
    for event in stream:
        table.take(enveloped(DEBEZIUM, event))
        if event.name == "reset":
            ours.clear()
        elif event.data:
            data = json.loads(event.data)
            ours[data["type"], data["id"]] = None if event.name == "delete" else data["data"]

    assert table.rows == {key: data for key, data in ours.items() if data is not None}


def test_our_own_format_is_what_websockets_have() -> None:
    """`id`, `event` and `data`; the last one is not there for `reset` and `live`."""
    assert enveloped(TIDINGS, operation()) == {
        "id": operation().id,
        "event": "update",
        "data": json.loads(operation().data),
    }
    assert enveloped(TIDINGS, RESET) == {"id": "1", "event": "reset"}


@pytest.mark.parametrize("name", FORMATS)
def test_traces_are_for_who_asks(name: str) -> None:
    """This holds for the block and for the envelope."""
    event = operation(trace=TRACE)
    for lines in (True, False):
        for traced in (True, False):
            options = EventOptions(trace=traced)
            write = envelopes.writer(name, "main", lambda: 0, options, lines=lines) or to_sse
            assert (TRACE in write(event)) == traced
            if not lines:
                assert write(event).startswith("traceparent: " if traced else "id: ")


def test_blocks_of_ours_are_left_to_the_parts() -> None:
    """The parts slice them: nothing is parsed, and no event is created."""
    assert envelopes.writer(TIDINGS, "main", lambda: 0, NO_OPTIONS, lines=False) is None


def test_a_format_that_there_is_not() -> None:
    """Named, with those that there are; an empty one is ours."""
    assert envelopes.check_format(None) == envelopes.check_format("") == TIDINGS
    with pytest.raises(InvalidFilter, match="tidings, cloudevents, debezium") as refused:
        envelopes.check_format("CloudEvents")
    assert refused.value.field == "format"


def test_refs_are_in_the_data() -> None:
    """The ref that a feed with an object URL adds is in each format."""
    event = operation()
    linked = event._replace(data=f'{event.data[:-1]},"ref":"/x"}}')

    assert (
        enveloped(CLOUDEVENTS, linked)["data"]["ref"]
        == enveloped(DEBEZIUM, linked)["after"]["ref"]
        == "/x"
    )
