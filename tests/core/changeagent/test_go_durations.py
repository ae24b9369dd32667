"""Durations: as Go reads and prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidings.core.changeagent.go_durations import parse, written

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("300ms", 300_000_000),
        ("-1.5h", -5400 * S),
        ("2h45m", 9900 * S),
        ("1h0m0.5s", 3600 * S + S // 2),
        (".5s", S // 2),
        ("1.s", S),
        ("3us", 3000),
        ("3\u00b5s", 3000),
        ("+7ns", 7),
    ],
)
def test_what_go_reads(text: str, ns: int) -> None:
    """Decimal numbers with units, one after the other."""
    assert parse(text) == ns


@pytest.mark.parametrize(
    "text", ["", "1", "s", "1x", "1 s", "--1s", ".s", "1e3s", "\u0661s", "9999999h"]
)
def test_what_go_refuses(text: str) -> None:
    """In its words."""
    with pytest.raises(ValueError, match="time: invalid duration"):
        parse(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1500, "1.5\u00b5s"),
        (300_000_000, "300ms"),
        (10 * S, "10s"),
        (90 * S, "1m30s"),
        (3600 * S, "1h0m0s"),
        (-5400 * S, "-1h30m0s"),
        (100 * S, "1m40s"),
    ],
)
def test_what_go_prints(ns: int, text: str) -> None:
    """The largest units that fit."""
    assert written(ns) == text


@given(st.integers(-(2**62), 2**62))
def test_what_is_printed_is_read(ns: int) -> None:
    """To the nanosecond."""
    assert parse(written(ns)) == ns
