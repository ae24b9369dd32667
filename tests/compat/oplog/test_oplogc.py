"""The stream as oplogc reads it; first, that its replacement is as strict.

oplogc's own Go module was not at hand when this was written; the replacement follows its source.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.oplogc import Consumer, Decoder, Event, InFlight, InvalidEvent
from tidings.core.catchup.sse import RESUME

DATA = b'data: {"timestamp":"2026-11-20T17:19:10.94Z","parents":null,"type":"v","id":"x"}'


def _decoded(stream: bytes) -> list[Event]:
    decoder = Decoder()
    return [event for line in stream.split(b"\n")[:-1] if (event := decoder.line(line))]


def test_comments_and_blank_lines_are_nothing() -> None:
    """Heartbeats between and inside blocks, and events with and without their own id."""
    stream = b":\n\n: hello\n\nid: 1\n:\nevent: reset\n\nevent: insert\n%b\n\n" % DATA

    assert [(event.id, event.name) for event in _decoded(stream)] == [
        ("1", "reset"),
        ("1", "insert"),
    ]


def test_when_to_resume_may_be_said_inside_an_event() -> None:
    """A stream's first event has it. oplogc cannot parse it in a block of its own (next test)."""
    told = RESUME.encode() + b"id: 1\nevent: reset\n\n"

    assert [(event.id, event.name) for event in _decoded(told)] == [("1", "reset")]


@pytest.mark.parametrize(
    "block",
    [
        b"retry: 3000\n\n",
        b"id: 5\n\n",
        b"id: 5\nevent: insert\n\n",
        b"event: insert\ndata: {\n\n",
        b"event: insert\n%b\n%b\n\n" % (DATA, DATA),
        b'event: insert\ndata: {"timestamp":"2026-11-20","type":"v","id":"x"}\n\n',
        b'event: insert\ndata: {"timestamp":"2026-11-20T17:19:10Z","type":"v","id":5}\n\n',
    ],
)
def test_blocks_that_oplogc_cannot_take(block: bytes) -> None:
    """Without an event, without data, or with data that is not an operation."""
    with pytest.raises(InvalidEvent):
        _decoded(block)


def test_other_line_endings_end_nothing() -> None:
    """With CRLF an event never ends: oplogc would hang."""
    assert _decoded(b"id: 1\r\nevent: reset\r\n\r\n") == []


def test_only_the_oldest_moves_the_position() -> None:
    """As in oplogc: an acknowledgement before the oldest event does not count afterwards."""
    flight = InFlight("0")
    for event_id in ("a", "b", "c", "c"):
        flight.push(event_id)
    flight.done("b")
    flight.done("a")
    assert (flight.last_id, flight.ids) == ("a", ["c"])


def _consumer(feed: Feed, folder: Path, position: str, **filters: Any) -> Consumer:
    """Return a consumer that was at *position* when it ended."""
    (folder / "seen").write_text(position)
    url = f"http://127.0.0.1:{feed.port}{feed.path}"
    return Consumer(url, state_file=folder / "seen", **filters)


def _names(events: list[Event]) -> list[str]:
    return [f"{event.name} {event.data.get('id', '')}".strip() for event in events]


def test_O44_a_full_replication_then_the_log(feed: Feed, tmp_path: Path) -> None:
    """Every block from the reset to the live operations is one that oplogc takes."""
    feed.post(*[op(f"x{number}", data={"text": "<é&\u2028>\r\n"}) for number in range(50)])
    feed.post(op("x0", "delete"))
    feed.settle()
    consumer = _consumer(feed, tmp_path, "0")
    events = consumer.connection()
    copied = []
    for event in events:
        copied.append(event)
        consumer.done(event)
        if event.name == "live":
            break
    feed.post(op("x1", "update"), op("x2", "delete"))
    last = list(islice(events, 2))

    assert _names(copied)[0] == "reset"
    assert sorted(_names(copied)[1:-1]) == sorted(f"insert x{number}" for number in range(1, 50))
    assert _names(last) == ["update x1", "delete x2"]


def test_O49_every_position_in_a_replication_resumes(feed: Feed, tmp_path: Path) -> None:
    """Cut after each event in turn and connected again: one reset, and no object is missing."""
    feed.post(*[op(f"x{number}") for number in range(12)])
    feed.settle()
    consumer = _consumer(feed, tmp_path, "0")
    seen: list[str] = []
    for life in range(2, 60):
        for event in islice(consumer.connection(), life):
            seen.append(event.name if not event.data else event.data["id"])
            consumer.done(event)
            if event.name == "live":
                break
        if seen[-1] == "live":
            break

    assert seen.count("reset") == 1
    assert seen[-1] == "live"
    assert {f"x{number}" for number in range(12)} <= set(seen)
