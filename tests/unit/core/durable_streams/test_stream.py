"""Whether a producer may append."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidings.core import limits
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
from tidings.core.errors import Rejected
from tidings.core.model.cursors import Place

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
