"""The form of a body in the log, and its form in an answer."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, page
from tidings.core import limits
from tidings.core.durable_streams import messages
from tidings.core.durable_streams.messages import TYPE, body_of, data_event, lines_from
from tidings.core.durable_streams.stream import (
    Appending,
    InvalidStream,
    Producer,
    SequenceGap,
    StaleEpoch,
    Stream,
    StreamClosed,
    StreamConflict,
    after,
    check_same,
    is_repeated,
)
from tidings.core.errors import InvalidOperation, Rejected, TooLarge
from tidings.core.model.cursors import Place
from tidings.core.model.operations import parse_line

NAME = "a/ä b"
ANY = "application/octet-stream"


def told(kind: str, *bodies: bytes) -> bytes:
    """Return the body that readers get after *bodies* were appended one after the other."""
    data = []
    for body in bodies:
        lines = lines_from(NAME, kind, body, NOW)
        for line in lines:
            operation = parse_line(line)
            assert (operation.event, operation.type, operation.id) == ("update", TYPE, NAME)
            assert len(line.encode()) <= limits.OPERATION_BYTES_MAX
        data += messages.data_of(page(1, *lines), 0)
    return body_of(kind, data)


def test_numbers_keep_their_digits() -> None:
    """They come back as they were written, also if no double has as many digits."""
    body = b'[3.14159265358979323846,{"x":1e-400,"y":12345678901234567890.5}]'
    assert told("application/json", body) == body


@given(st.lists(st.binary(min_size=1), min_size=1), st.sampled_from([ANY, "text/plain"]))
def test_bytes_come_back_as_they_were(bodies: list[bytes], kind: str) -> None:
    """This includes bytes that are not text."""
    assert told(kind, *bodies) == b"".join(bodies)


@pytest.mark.parametrize(
    "body",
    [bytes(range(256)) * 2_000, b"\0" * 500_000, "ä€𝄞\u2028".encode() * 20_000, b"plain" * 40_000],
    ids=["bytes", "zeros", "wide", "plain"],
)
@pytest.mark.parametrize("kind", [ANY, "text/plain"])
def test_a_large_body_is_cut_into_operations(kind: str, body: bytes) -> None:
    """None longer than an operation may be, and between characters."""
    assert told(kind, body) == body
    assert len(lines_from("x" * limits.ID_BYTES_MAX, kind, body, NOW)) > 1


@given(st.recursive(st.none() | st.integers() | st.text(max_size=9), st.lists, max_leaves=9))
def test_json_comes_back_as_values(value: object) -> None:
    """One message each element of an array, one level deep."""
    body = json.dumps(value).encode()
    expected = value if isinstance(value, list) else [value]

    assert json.loads(told("application/json", body)) == expected


def test_operations_carry_what_consumers_of_the_feed_read() -> None:
    """The data is the JSON value, or text, or base64; an empty array has no operation."""

    def data(kind: str, body: bytes) -> list[object]:
        return [json.loads(line).get("data") for line in lines_from(NAME, kind, body, NOW)]

    assert data("application/json", b'[1,{"a":[]},null]') == [1, {"a": []}, None]
    assert data("application/json", b"[]") == []
    assert data("text/markdown", "ä".encode()) == [{"text": "ä"}]
    assert data("text/markdown", b"\xff") == [{"base64": "/w=="}]
    assert data("application/x-ndjson", b"{}\n") == [{"base64": "e30K"}]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", InvalidOperation),
        (b"1e999", InvalidOperation),
        (b'"\\ud800"', InvalidOperation),
        (b"[" * 33 + b"]" * 33, InvalidOperation),
        (json.dumps("x" * limits.OPERATION_BYTES_MAX).encode(), TooLarge),
        (json.dumps([1] * (limits.REQUEST_OPERATIONS_MAX + 1)).encode(), TooLarge),
        (b" " * (limits.REQUEST_BYTES_MAX + 1), TooLarge),
    ],
)
def test_what_the_log_cannot_have_is_refused(body: bytes, error: type[Rejected]) -> None:
    """The limits are those of operations."""
    with pytest.raises(error):
        lines_from(NAME, "application/json", body, NOW)


def parsed(block: str) -> tuple[str, str]:
    """Name and data of a block, as a browser reads it."""
    assert block.endswith("\n\n") and block.count("\n\n") == 1
    fields = [line.partition(":")[::2] for line in block[:-2].split("\n")]
    data = [value.removeprefix(" ") for name, value in fields if name == "data"]
    (name,) = [value.removeprefix(" ") for name, value in fields if name == "event"]
    assert "\r" not in block
    return name, "\n".join(data)


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_ends_its_event(text: str) -> None:
    """After each kind of line end the data continues on a new line, whatever text follows."""
    name, data = parsed(data_event("text/plain", [{"text": text}]))

    assert name == "data"
    assert data == text.replace("\r\n", "\n").replace("\r", "\n")


def test_events_have_json_as_an_array_and_bytes_as_base64() -> None:
    """All that was read at once in one event."""
    assert parsed(data_event("application/json", [1, {"a": "\n"}])) == ("data", '[1,{"a":"\\n"}]')
    block = data_event("image/png", [{"base64": "AAE="}, {"base64": "Ag=="}])
    assert base64.b64decode(parsed(block)[1]) == b"\0\1\2"


START = Place(3, 0x7FFFFF, 9)
STREAM = Stream("log", "text/plain", START, START, seq="b", producers=(Producer("p", 2, 5),))
CLOSED = replace(STREAM, closed=True)


def asked(
    *producer: object, body: bytes = b"x", kind: str = "text/plain", **fields: object
) -> Appending:
    given = Producer(*producer) if producer else None  # type: ignore[arg-type]
    return Appending(body, kind, producer=given, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stream", "appending", "repeated"),
    [
        (STREAM, asked(), False),
        (STREAM, asked(kind="Text/Plain; charset=utf-8"), False),
        (STREAM, asked(seq="c"), False),
        (STREAM, asked("p", 2, 6), False),
        (STREAM, asked("p", 3, 0), False),
        (STREAM, asked("new", 4, 0), False),
        (STREAM, asked("p", 2, 5), True),
        (STREAM, asked("p", 2, 0, seq="a"), True),
        (STREAM, asked(body=b"", kind="", closes=True), False),
        (CLOSED, asked("p", 2, 5), True),
        (CLOSED, asked("p", 2, 5, closes=True), True),
        (CLOSED, asked(body=b"", kind="", closes=True), True),
    ],
)
def test_what_was_taken_before_is_not_taken_again(
    stream: Stream, appending: Appending, repeated: bool
) -> None:
    """The producer's numbers show it; a stream is closed once."""
    assert is_repeated(stream, appending) is repeated


@pytest.mark.parametrize(
    ("stream", "appending", "error"),
    [
        (STREAM, asked("p", 1, 6), StaleEpoch),
        (STREAM, asked("p", 3, 1), InvalidStream),
        (STREAM, asked("p", 2, 7), SequenceGap),
        (STREAM, asked("new", 0, 1), SequenceGap),
        (STREAM, asked(kind="text/html"), StreamConflict),
        (STREAM, asked(seq="b"), StreamConflict),
        (STREAM, asked(seq="B"), StreamConflict),
        (CLOSED, asked(), StreamClosed),
        (CLOSED, asked("p", 2, 6), StreamClosed),
        (CLOSED, asked("p", 2, 6, body=b"", closes=True), StreamClosed),
        # The checks of the producer come first.
        (CLOSED, asked("p", 1, 0), StaleEpoch),
        (CLOSED, asked("p", 2, 9), SequenceGap),
        (STREAM, asked("p", 1, 0, kind="text/html", seq="a"), StaleEpoch),
    ],
)
def test_who_may_not_append_is_told_why(
    stream: Stream, appending: Appending, error: type[Rejected]
) -> None:
    """Each reason that a client acts on has its own code."""
    with pytest.raises(Rejected) as refused:
        is_repeated(stream, appending)
    assert type(refused.value) is error


def test_a_gap_and_a_stale_epoch_say_where_the_producer_stands() -> None:
    """The producer can then resume, or begin a new epoch."""
    with pytest.raises(SequenceGap) as gap:
        is_repeated(STREAM, asked("p", 2, 9))
    with pytest.raises(StaleEpoch) as stale:
        is_repeated(STREAM, asked("p", 0, 0))

    assert (gap.value.received, gap.value.expected) == (9, 6)
    assert stale.value.epoch == 2


def test_a_request_changes_what_it_names() -> None:
    """Other fields of the stream stay."""
    tail = Place(4, 0, 10)

    assert after(STREAM, asked(), tail) == replace(STREAM, tail=tail)
    assert after(STREAM, asked("p", 2, 6, closes=True, seq="c"), tail) == replace(
        STREAM, tail=tail, closed=True, seq="c", producers=(Producer("p", 2, 6),)
    )
    assert after(CLOSED, asked(body=b"", closes=True), STREAM.tail) == CLOSED


def test_the_producer_that_is_silent_for_longest_is_forgotten() -> None:
    """This happens above a limit, as a stream's data is written with each append."""
    stream = STREAM
    for number in range(limits.STREAM_PRODUCERS_MAX - 1):
        stream = after(stream, asked(f"{number}", 0, 0), START)
    stream = after(stream, asked("p", 2, 6), START)
    assert len(stream.producers) == limits.STREAM_PRODUCERS_MAX
    stream = after(stream, asked("last", 0, 0), START)

    assert len(stream.producers) == limits.STREAM_PRODUCERS_MAX
    assert stream.producer("0") is None
    assert stream.producer("p") == Producer("p", 2, 6)


def test_no_credential_makes_a_stream_forget_the_producer_of_another() -> None:
    """This holds for any number of ids; otherwise a repeated request would be appended twice."""
    stream = after(STREAM, asked("key\tvictim", 0, 3), START)
    for number in range(2 * limits.STREAM_PRODUCERS_MAX):
        stream = after(stream, asked(f"other\t{number}", 0, 0), START)

    assert len(stream.producers) == limits.STREAM_PRODUCERS_MAX
    assert is_repeated(stream, asked("key\tvictim", 0, 3))


def test_a_stream_is_created_once() -> None:
    """A repeat must have the same type, apart from its parameters, and the same closed state."""
    check_same(STREAM, "TEXT/plain;charset=x", closed=False)
    check_same(CLOSED, "text/plain", closed=True)
    for stream, kind, closed in ((STREAM, "text/css", False), (STREAM, "text/plain", True)):
        with pytest.raises(StreamConflict):
            check_same(stream, kind, closed=closed)
