"""Writing and reading streams on a feed that has other operations as well.

Offsets and cursors of live readers.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryStreams
from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core import limits
from tidings.core.durable_streams import messages
from tidings.core.durable_streams.messages import body_of
from tidings.core.durable_streams.service import StreamPart, StreamReader, StreamWriter
from tidings.core.durable_streams.stream import (
    Appending,
    Extent,
    InvalidStream,
    OffsetGone,
    Producer,
    Stream,
    StreamConflict,
    UnknownStream,
)
from tidings.core.errors import Chained, Rejected, TooLarge
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.tracing import OFF, Tracer

NAME, KIND = "log", "text/plain"


class Streams:
    """What writes and reads the streams of *scene*."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.store = scene, MemoryStreams()
        self.writer = StreamWriter(
            appender=scene.appender,
            store=self.store,
            runtime=scene.runtime,
            tracer=Tracer(OFF, scene.runtime),
        )
        self.reader = StreamReader(self.store, scene.reader)

    def create(self, body: bytes = b"", kind: str = KIND, *, closes: bool = False) -> Stream:
        return self.writer.create(FEED, NAME, Appending(body, kind, closes))[0]

    def append(self, body: bytes, kind: str = KIND, *producer: object) -> tuple[Stream, bool]:
        given = Producer(*producer) if producer else None  # type: ignore[arg-type]
        return self.writer.append(FEED, NAME, Appending(body, kind, producer=given))

    def read(self, offset: str | None = None) -> StreamPart:
        return self.reader.read(FEED, NAME, offset)

    def text(self, offset: str | None = None) -> str:
        return body_of(KIND, self.read(offset).data).decode()


@pytest.fixture
def streams() -> Streams:
    return Streams(Scene())


def place(stream: Stream) -> str:
    return messages.encode_offset(stream.tail)


def test_what_is_appended_follows_its_offset(streams: Streams) -> None:
    """Other posts to the feed in the meantime do not matter."""
    first = streams.create(b"a")
    streams.scene.post(op("other"))
    second, is_new = streams.append(b"bc")
    streams.scene.post(op("other"))

    assert is_new
    assert streams.text() == streams.text("-1") == "abc"
    assert streams.text(place(first)) == "bc"
    assert streams.text(place(second)) == streams.text("now") == ""
    assert place(first) < place(second)
    assert messages.encode_offset(streams.read().end) == place(second)
    assert streams.read().at_tail and not streams.read().is_last


def test_a_long_stream_is_sent_in_batches(streams: Streams) -> None:
    """Each batch except the last says that more follows."""
    streams.create()
    body = b"0123456789abcdef" * 20_000
    for _ in range(5):
        streams.append(body)
    parts = [streams.read()]
    while not parts[-1].at_tail:
        assert parts[-1].size
        parts.append(streams.read(messages.encode_offset(parts[-1].end)))

    assert [len(body_of(KIND, each.data)) // len(body) for each in parts] == [4, 1]
    assert b"".join(body_of(KIND, each.data) for each in parts) == 5 * body


def test_a_reader_that_is_overtaken_by_a_new_stream_is_told_nothing_of_it(streams: Streams) -> None:
    """The old stream is deleted and created again between the look-up and the read."""
    old = streams.create(b"old")

    class Overtaken(MemoryStreams):
        def stream(self, feed: str, name: str) -> Stream:
            return old

        def extents(self, *asked: Any) -> list[Extent]:
            return streams.store.extents(*asked)

    streams.writer.remove(FEED, NAME)
    streams.create(b"new")
    reader = StreamReader(Overtaken(), streams.scene.reader)

    with pytest.raises(OffsetGone):
        reader.read(FEED, NAME, None)
    assert reader.read(FEED, NAME, place(old)).data == []


def test_what_is_there_is_not_created_again(streams: Streams) -> None:
    """The same one is left as it is, another one is a conflict."""
    streams.create(b"a")
    stream, is_new = streams.writer.create(FEED, NAME, Appending(b"b", "text/plain; x=y"))

    assert (is_new, streams.text()) == (False, "a")
    assert stream.content_type == KIND
    with pytest.raises(StreamConflict):
        streams.create(kind="text/css")


def test_a_closed_stream_ends_at_its_tail(streams: Streams) -> None:
    """Only a read that reaches the end of the stream says so, and its tag differs."""
    streams.create(b"a")
    before = streams.read()
    streams.writer.append(FEED, NAME, Appending(b"", closes=True))
    after = streams.read()

    assert after.is_last and streams.read("now").is_last
    assert before.etag != after.etag
    assert after.etag != streams.read(messages.encode_offset(after.end)).etag


def test_what_is_refused_writes_nothing(streams: Streams) -> None:
    """No message and no number of a producer is stored."""
    streams.create(b"1", "application/json")
    head, stream = streams.scene.log.head(FEED), streams.store.stream(FEED, NAME)
    refused: list[tuple[bytes, str]] = [
        (b"[]", "application/json"),
        (b"{", "application/json"),
        (b"x", KIND),
        (b"x", ""),
        (b"", "application/json"),
        (b" " * (limits.REQUEST_BYTES_MAX + 1), "application/json"),
    ]
    for body, kind in refused:
        with pytest.raises(Rejected):
            streams.append(body, kind, "p", 0, 0)

    assert (streams.scene.log.head(FEED), streams.store.stream(FEED, NAME)) == (head, stream)
    with pytest.raises(UnknownStream):
        streams.writer.append(FEED, "another", Appending(b"x", KIND))


def test_below_the_floor_nothing_is_told_as_if_it_were_all(streams: Streams) -> None:
    """A reader that needs trimmed messages gets an error; one that has them reads the rest."""
    streams.create(b"a")
    first = streams.append(b"b")[0]
    streams.scene.post(op("other"))
    second = streams.append(b"c")[0]
    streams.scene.log.raise_floor(FEED, second.tail.page)

    assert streams.text(place(first)) == "c"
    assert streams.text(place(second)) == ""
    for offset in (None, "-1", messages.encode_offset(Place(1, 0, 0))):
        with pytest.raises(OffsetGone):
            streams.read(offset)
    streams.scene.log.raise_floor(FEED, second.tail.page + 1)
    with pytest.raises(OffsetGone):
        streams.read(place(first))
    assert streams.text("now") == ""


@pytest.mark.parametrize("offset", ["f" * 16 + "0" * 8, "0" * 24, "7", ""])
def test_an_offset_that_was_never_told_is_refused(streams: Streams, offset: str) -> None:
    """Such an offset is before the stream, after its end, or malformed."""
    streams.scene.post(op("other"))
    streams.create(b"a")
    with pytest.raises((OffsetGone, InvalidStream)):
        streams.read(offset)


def test_a_copy_of_a_feed_has_no_streams_of_its_own(streams: Streams) -> None:
    """They are the master's."""

    def refuse(feed: str) -> None:
        raise Chained(feed, "http://master.example")

    streams.writer = replace(
        streams.writer, appender=replace(streams.scene.appender, check_writable=refuse)
    )
    with pytest.raises(Chained):
        streams.create()


def test_what_a_page_cannot_hold_is_refused(streams: Streams) -> None:
    """Packed: bytes that are random."""
    streams.create(kind="application/octet-stream")
    noise = Random(1).randbytes(400_000)
    with pytest.raises(TooLarge):
        streams.append(noise, "application/octet-stream")
    assert streams.text() == ""


PLACES = st.builds(
    Place, st.integers(0, 16**10 - 1), st.integers(0, PAGE_END), st.integers(0, 16**8 - 1)
)


@given(PLACES, PLACES)
def test_offsets_sort_as_their_places(one: Place, other: Place) -> None:
    """They sort as text; they hold the digits of the event id, with those of the seconds at the
    end."""
    assert messages.parse_offset(messages.encode_offset(one)) == one
    assert (messages.encode_offset(one) < messages.encode_offset(other)) is (one < other)
    id_ = one.encode()
    assert messages.encode_offset(one) == id_[8:] + id_[:8]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-2",
        "NOW",
        " ",
        "0" * 23,
        "0" * 25,
        "0000000001800000" + "0" * 8,
        "A" * 24,
        "²" * 24,
    ],
)
def test_what_is_no_offset_is_refused(text: str) -> None:
    """This includes a place within a copy of the feed."""
    with pytest.raises(InvalidStream):
        messages.parse_offset(text)


def test_a_live_reader_never_gets_the_cursor_it_has() -> None:
    """Otherwise a cache would give it the same answer forever."""
    now = messages.live_cursor("", NOW)

    assert messages.live_cursor("", NOW + 20_000) == now + 1
    assert messages.live_cursor("", NOW + 19_999) in (now, now + 1)
    assert messages.live_cursor(f"{now - 1}", NOW) == now
    assert messages.live_cursor(f"{now}", NOW) == now + 1
    assert messages.live_cursor(f"{now + 7}", NOW) == now + 8
    for strange in ("x", "-1", "1" * 40, "²"):
        assert messages.live_cursor(strange, NOW) == now
