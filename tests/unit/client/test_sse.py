"""The parser of Server-Sent Events, fed whole, byte by byte, and with every line ending."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.client import sse
from tidings.client.errors import Lost
from tidings.client.events import Event, Moved

STREAM = (
    ": hello\n\n"
    'id: 1\nevent: insert\ndata: {"type":"vidéo","id":"x😀"}\n\n'
    "id: 2\n\n"
    "event: reset\ndata: {}\n\n"
    'id:3\nevent:update\ndata:{\ndata: "a":1}\nretry: 5\nother: x\n\n'
    "id: 4\nevent: insert\ndata: {}\n"
)
EVENTS = [
    Event("1", "insert", {"type": "vidéo", "id": "x😀"}),
    Moved("2"),
    Event("2", "reset"),
    Event("3", "update", {"a": 1}),
]


def _parse(chunks: list[bytes]) -> list[Event | Moved]:
    parser = sse.Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_every_line_ending(ending: str) -> None:
    """LF, CRLF and CR end a line; an unfinished block is not an event."""
    assert _parse([STREAM.replace("\n", ending).encode()]) == EVENTS


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_byte_by_byte(ending: str) -> None:
    """The result does not depend on how the network splits the text, even within a character."""
    stream = STREAM.replace("\n", ending).encode()

    assert _parse([stream[at : at + 1] for at in range(len(stream))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM.encode()))), st.sampled_from(["\n", "\r\n"]))
def test_cut_anywhere(cuts: list[int], ending: str) -> None:
    """Any chunks give the events of the whole."""
    stream = STREAM.replace("\n", ending).encode()
    edges = [0, *sorted(cuts), len(stream)]

    assert _parse([stream[a:b] for a, b in pairwise(edges)]) == EVENTS


def test_byte_order_mark() -> None:
    """A byte order mark at the start is not part of the first field."""
    assert _parse([b"\xef\xbb\xbfid: 1\n\n"]) == [Moved("1")]


def test_a_line_without_end() -> None:
    """What never ends a line is cut off before it fills the memory."""
    with pytest.raises(Lost):
        _parse([b"data: " + b"x" * (sse.LINE_CHARS_MAX + 1)])
