"""Events as clients receive them: SSE blocks and WebSocket messages."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, page, unpacked
from tidings.core import limits
from tidings.core.model import events as frames
from tidings.core.model.cursors import Place
from tidings.core.model.events import Event

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
