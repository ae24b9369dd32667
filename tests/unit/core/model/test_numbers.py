"""Whole numbers of requests: digits, measured before they are read."""

from __future__ import annotations

import pytest

from tidings.core.errors import InvalidChange, whole, whole_in


@pytest.mark.parametrize("text", ["", "-1", "+1", "1 ", "1_0", "\u0661", "0x1", "1e3", str(2**64)])
def test_a_whole_number_is_digits(text: str) -> None:
    """As changeagent's parser takes them, and no more."""
    with pytest.raises(ValueError, match="must be a whole number from 0 to 18446744073709551615"):
        whole(text, 0, 2**64 - 1)


def test_within_its_bounds() -> None:
    """Both of them are in."""
    assert whole(str(2**64 - 1), 0, 2**64 - 1) == 2**64 - 1
    assert (whole("007", 1, 999), whole("7", 7, 7)) == (7, 7)
    for text in ("0", "8"):
        with pytest.raises(ValueError, match="from 1 to 7"):
            whole(text, 1, 7)


def test_more_digits_than_python_reads_are_an_ordinary_mistake() -> None:
    """The error names field, value and rule, and is short."""
    with pytest.raises(InvalidChange) as refused:
        whole_in("9" * 5000, "since", 0, 10, InvalidChange)
    body = refused.value.body()
    assert (body["field"], body["rule"]) == ("since", "must be a whole number from 0 to 10")
    assert len(str(body)) < 400
