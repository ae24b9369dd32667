"""Pages and rows on their way to a feed that copies another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line
from tidings.core.errors import BrokenBatch
from tidings.core.model.pages import Page, encode
from tidings.core.replication.wire import (
    ReplicationBatch,
    Rows,
    UpstreamStatus,
    decode_batch,
    decode_rows,
    encode_batch,
    encode_rows,
)
from tidings.core.state.rows import Row

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)
STANDINGS = st.builds(
    UpstreamStatus,
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.text(),
    st.lists(st.text()).map(tuple),
    st.integers(0, NOW),
)
STATUS = UpstreamStatus(
    floor=1,
    head=7,
    state=5,
    master="https://a.example/feeds/main",
    via=("one", "two"),
    master_read_ms=NOW,
)


def page(number: int, *lines: str, slots: tuple[int, ...] | None = None) -> Page:
    return Page(number, "\n".join(lines), "", NOW + number, slots=slots)


@given(STANDINGS, st.lists(st.lists(TEXTS, max_size=3), max_size=4), st.integers(0, 9))
def test_D2_pages_are_heard_as_they_were_told(
    status: UpstreamStatus, bodies: list[list[str]], filtered: int
) -> None:
    """This holds for any entries and for fillers; entries pass as text, so their bytes are kept."""
    pages = tuple(page(number, *lines) for number, lines in enumerate(bodies, 1))
    batch = ReplicationBatch(status, pages, 0, filtered)

    assert decode_batch(encode_batch(batch)) == batch


def test_slots_are_told() -> None:
    """A page that was copied in part is sent with its slots; a packed page is sent unpacked."""
    some, none = page(1, "a", "b", slots=(0, 7)), page(2, slots=())
    packed = Page(3, encode([line()] * 900), "id", NOW)

    received = decode_batch(encode_batch(ReplicationBatch(STATUS, (some, none, packed))))

    assert isinstance(packed.body, bytes)
    assert received.pages == (some, none, Page(3, packed.text, "", NOW))


@given(
    STANDINGS, st.lists(st.builds(Row, TEXTS, *[st.integers(0, NOW)] * 3, TEXTS)), st.none() | TEXTS
)
def test_rows_are_heard_as_they_were_told(
    status: UpstreamStatus, rows: list[Row], after: str | None
) -> None:
    """Rows keep their positions and times; the reply has the key to continue after."""
    reply = Rows(status, tuple(rows), after)

    assert decode_rows(encode_rows(reply)) == reply


ENCODED = encode_batch(ReplicationBatch(STATUS, (page(1, "a"), page(2, "b"))))
ROWS = encode_rows(Rows(STATUS, tuple(Row(f"k{at}", 1, at, NOW, "l") for at in range(2))))


@pytest.mark.parametrize(("read", "text"), [(decode_batch, ENCODED), (decode_rows, ROWS)])
def test_what_ends_early_is_none(read: Callable[[str], object], text: str) -> None:
    """A text that is cut anywhere is refused: otherwise living objects would count as deleted."""
    for length in range(len(text)):
        with pytest.raises(BrokenBatch):
            read(text[:length])


FOREIGN = [
    "<html>",
    "[]\n",
    "{}\n",
    "null\n",
    ENCODED.replace('"floor":1', '"floor":"x"'),
    "\n" + ENCODED,
]


@pytest.mark.parametrize("text", FOREIGN, ids=range(len(FOREIGN)))
def test_what_is_none_is_told(text: str) -> None:
    """Every malformed text raises the same error."""
    for hear in (decode_batch, decode_rows):
        with pytest.raises(BrokenBatch):
            hear(text)
