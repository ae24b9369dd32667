"""Which events repeat what was handled (P6.4)."""

from __future__ import annotations

import pytest

from tests.unit.client.fake_log import event_id
from tidings.client.errors import Lost
from tidings.client.events import Event, Handled, from_text

ROW = "000000000000000005800003"


def test_an_operation_at_or_below_the_last_one_repeats() -> None:
    """P6.4: page and slot decide; the next slot and the next page are new."""
    handled = Handled()
    handled.note(Event(event_id(3, 2), "insert"))

    assert handled.repeats(Event(event_id(3, 2), "insert"))
    assert handled.repeats(Event(event_id(2, 9), "update"))
    assert not handled.repeats(Event(event_id(3, 3), "update"))
    assert not handled.repeats(Event(event_id(4, 0), "delete"))


@pytest.mark.parametrize("between", [Event(ROW, "insert"), Event("", "reset"), Event("", "live")])
def test_a_copy_starts_anew(between: Event) -> None:
    """P5.6: after a copy the log may be another one, whose pages are numbered from 1 again."""
    handled = Handled()
    handled.note(Event(event_id(1000), "insert"))

    assert not handled.repeats(between)
    handled.note(between)
    assert not handled.repeats(Event(event_id(1), "insert"))


def test_rows_of_a_copy_never_repeat() -> None:
    """P6.3: the rows of a bucket share an id; each of them counts."""
    handled = Handled()
    handled.note(Event(ROW, "insert"))

    assert not handled.repeats(Event(ROW, "insert"))


def test_an_id_of_no_known_kind_is_handled() -> None:
    """A consumer shows what it cannot place rather than losing it."""
    handled = Handled()
    handled.note(Event("what", "insert"))

    assert not handled.repeats(Event("what", "insert"))


@pytest.mark.parametrize("text", ["{", "[]", "1", '"a"'])
def test_data_that_is_no_object_ends_the_connection(text: str) -> None:
    """P6.1: data is one JSON object; anything else did not come from a feed."""
    with pytest.raises(Lost, match="not a JSON object"):
        from_text("1", "insert", text)
