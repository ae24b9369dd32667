"""Offsets and cursors of live readers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW
from tidings.core.durable_streams import messages
from tidings.core.durable_streams.stream import InvalidStream
from tidings.core.model.cursors import PAGE_END, Place

PLACES = st.builds(
    Place, st.integers(0, 16**10 - 1), st.integers(0, PAGE_END), st.integers(0, 16**8 - 1)
)


@given(PLACES, PLACES)
def test_offsets_sort_as_their_places(one: Place, other: Place) -> None:
    """As text; they hold the digits of the event id, those of the seconds at the end."""
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
    """Also a place within a copy of the feed."""
    with pytest.raises(InvalidStream):
        messages.parse_offset(text)


def test_a_live_reader_never_gets_the_cursor_it_has() -> None:
    """Else a cache would answer it with the same for ever."""
    now = messages.live_cursor("", NOW)

    assert messages.live_cursor("", NOW + 20_000) == now + 1
    assert messages.live_cursor("", NOW + 19_999) in (now, now + 1)
    assert messages.live_cursor(f"{now - 1}", NOW) == now
    assert messages.live_cursor(f"{now}", NOW) == now + 1
    assert messages.live_cursor(f"{now + 7}", NOW) == now + 8
    for strange in ("x", "-1", "1" * 40, "²"):
        assert messages.live_cursor(strange, NOW) == now
