"""Events as clients receive them: SSE blocks and WebSocket messages."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, page, unpacked
from tidings.core import limits
from tidings.core.catchup.matching import PageSlice, page_events, page_part, row_event
from tidings.core.changeagent.changes import entry_of
from tidings.core.errors import InvalidConsumer, InvalidFilter
from tidings.core.model import events as frames
from tidings.core.model import filters
from tidings.core.model.cursors import Place
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

CURSOR = Place(7, 1, NOW // 1000).encode()
SIZES = st.lists(st.integers(0, limits.OPERATION_BYTES_MAX), max_size=8)


def event(at: int, size: int) -> str:
    """Return an event in JSON, of at least *size* bytes."""
    return frames.to_json(Event(f"{at:024x}", "update", json.dumps("x" * size)))


def test_O30_an_sse_block() -> None:
    """id of 24 hex digits, event, one line of data, a blank line; LF only."""
    block = frames.to_sse(frames.of_line(page(7).id_prefix, 3, line("x1", "insert")))

    assert block == (
        "id: 69153ec00000000007000003\n"
        "event: insert\n"
        'data: {"timestamp":"2025-11-13T02:13:20Z","parents":[],"type":"video","id":"x1"}\n'
        "\n"
    )


def test_O31_data_is_the_operation_without_its_event() -> None:
    """The event is the frame's name, and is not repeated."""
    kept = line("x1", "delete", parents=["a"], data={"k": "\n"})
    event = frames.of_line("p", 0, kept)

    assert (event.id, event.name) == ("p000000", "delete")
    assert list(json.loads(event.data)) == ["timestamp", "parents", "type", "id", "data"]
    assert json.loads(event.data)["data"] == {"k": "\n"}


def test_reset_and_live_carry_an_empty_object() -> None:
    """Browsers drop events without data; on a WebSocket there is no need."""
    assert frames.to_sse(Event("1", "reset", "")) == "id: 1\nevent: reset\ndata: {}\n\n"
    assert json.loads(frames.to_json(Event("1", "live", ""))) == {"id": "1", "event": "live"}


@given(SIZES)
def test_pack_keeps_order_and_bounds(sizes: list[int]) -> None:
    """No event is lost, doubled or moved; each message fits; the cursor ends the last one."""
    events = [event(at, size) for at, size in enumerate(sizes)]

    messages = list(frames.pack(events, CURSOR))

    assert all(len(message.encode()) <= limits.FRAME_BYTES_MAX for message in messages)
    decoded = [json.loads(message) for message in messages]
    ids = [int(item["id"], 16) for message in decoded for item in message["events"]]
    assert ids == list(range(len(sizes)))
    assert [message.get("cursor") for message in decoded[:-1]] == [None] * (len(decoded) - 1)
    assert decoded[-1]["cursor"] == CURSOR
    assert len(messages) == 1 or all(message["events"] for message in decoded)


@given(SIZES, st.randoms(use_true_random=False))
def test_8_9_packed_messages_are_the_plain_ones(sizes: list[int], random: Random) -> None:
    """P8.9: for any content, none is longer than in plain, and each stays within its limits."""
    noise = [random.randbytes(size // 2).hex() for size in sizes]  # hardly to compress
    events = [frames.to_json(Event("0" * 24, "update", json.dumps(each))) for each in noise]
    events += [event(at, size) for at, size in enumerate(sizes)]

    plain = list(frames.pack(events, CURSOR))
    packed = list(frames.pack(events, CURSOR, frames.GZIP))

    assert list(map(unpacked, packed)) == plain
    found = [(len(each), len(before.encode())) for each, before in zip(packed, plain, strict=True)]
    assert all(size <= before <= limits.FRAME_BYTES_MAX for size, before in found)
    assert all(each.isascii() for each in packed if not each.startswith("{"))


def test_8_9_what_gzip_makes_longer_is_sent_as_it_is() -> None:
    """P8.9: base64 adds a third, so that noise would pass the bounds of a message."""
    alphabet = [chr(code) for code in range(32, 127) if chr(code) not in '"\\']
    noise = "".join(Random(1).choices(alphabet, k=limits.OPERATION_BYTES_MAX))
    events = [frames.to_json(Event("0" * 24, "update", json.dumps(noise)))]

    assert list(frames.pack(events, CURSOR, frames.GZIP)) == list(frames.pack(events, CURSOR))


def test_8_9_one_operation_is_sent_as_it_is() -> None:
    """P8.9: base64 takes back what gzip saves of it; of a hundred it leaves a sixth."""
    one = [frames.to_json(frames.of_line(page(7).id_prefix, 3, line("x1", "insert")))]
    hundred = [
        frames.to_json(frames.of_line(page(7).id_prefix, slot, line(f"x{slot * 7919}", "insert")))
        for slot in range(100)
    ]

    assert list(frames.pack(one, CURSOR, frames.GZIP)) == list(frames.pack(one, CURSOR))
    assert list(frames.pack(hundred, CURSOR, "zstd")) == list(frames.pack(hundred, CURSOR))
    (plain,), (packed,) = frames.pack(hundred, CURSOR), frames.pack(hundred, CURSOR, frames.GZIP)
    assert len(packed) * 4 < len(plain)


def test_pack_fills_a_message_to_the_last_byte() -> None:
    """One byte more and there are two."""
    wrapping = len(next(frames.pack([], CURSOR)))
    room = limits.FRAME_BYTES_MAX - wrapping - 2 * (len(event(0, 0)) + 1)
    half = room // 2

    assert len(list(frames.pack([event(0, half), event(1, room - half)], CURSOR))) == 1
    assert len(list(frames.pack([event(0, half), event(1, room - half + 1)], CURSOR))) == 2


def test_pack_counts_bytes() -> None:
    """The limit is not in characters."""
    wide = frames.to_json(
        Event("0" * 24, "update", json.dumps("\u20ac" * 30_000, ensure_ascii=False))
    )

    assert len(list(frames.pack([wide, wide], CURSOR))) == 2


def test_replies_and_errors() -> None:
    """One object each; what cannot be UTF-8 is escaped."""
    assert json.loads(frames.reply("pong", state="live")) == {"reply": "pong", "state": "live"}
    assert json.loads(frames.error({"value": "\ud800"})) == {"error": {"value": "\ud800"}}
    assert frames.error({"value": "\ud800"}).isascii()


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
