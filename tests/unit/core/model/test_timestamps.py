"""Timestamps: read with any offset, kept in UTC to the millisecond."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.core.model import timestamps

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda m: timezone(timedelta(minutes=m)))


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ("2026-11-20T17:19:10.940Z", "2026-11-20T17:19:10.94Z"),
        ("2026-11-20T17:19:10Z", "2026-11-20T17:19:10Z"),
        ("2026-11-20T17:19:10.000Z", "2026-11-20T17:19:10Z"),
        ("2026-11-20t17:19:10z", "2026-11-20T17:19:10Z"),
        ("2026-11-20T17:19:10.9999999Z", "2026-11-20T17:19:10.999Z"),
        ("2026-11-20T17:19:10.000999Z", "2026-11-20T17:19:10Z"),
        ("2026-11-20T17:19:10+02:00", "2026-11-20T15:19:10Z"),
        ("2026-11-20T17:19:10-02:30", "2026-11-20T19:49:10Z"),
        ("2026-11-20T17:19:10-00:00", "2026-11-20T17:19:10Z"),
        ("2026-12-31T23:59:60Z", "2026-12-31T23:59:59Z"),
        ("2024-02-29T00:00:00+00:01", "2024-02-28T23:59:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00-23:59", "0001-01-01T23:59:00Z"),
    ],
)
def test_the_normal_form(given_: str, kept: str) -> None:
    """UTC, cut (never rounded) to milliseconds, no trailing zeros, a leap second held back."""
    assert timestamps.normal_form(given_) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-20",
        "2026-11-20T17:19:10",
        "2026-11-20 17:19:10Z",
        "2026-11-20T17:19Z",
        "2026-11-20T17:19:10.Z",
        "2026-11-20T17:19:10,5Z",
        "2026-11-20T17:19:10.1234567890123Z",
        "2026-11-20T17:19:10+0200",
        "2026-11-20T17:19:10+02",
        "2026-11-20T17:19:10+24:00",
        "2026-11-20T17:19:10+00:60",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T17:60:10Z",
        "2026-11-20T17:19:61Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+00:01",
        "\u0662\u0660\u0662\u0666-11-20T17:19:10Z",
        " 2026-11-20T17:19:10Z",
        "2026-11-20T17:19:10Z\n",
        "1795195150974",
    ],
)
def test_what_is_no_timestamp(text: str) -> None:
    """Other formats, impossible days and what leaves the years 1 to 9999 are refused."""
    with pytest.raises(ValueError, match=r"."):
        timestamps.normal_form(text)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=OFFSETS))
def test_the_normal_form_names_the_same_moment(moment: datetime) -> None:
    """This holds for any offset, to the millisecond; the normal form of a normal form is itself."""
    kept = timestamps.normal_form(moment.isoformat())

    cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert datetime.fromisoformat(kept) == cut
    assert timestamps.normal_form(kept) == kept


@given(st.text())
def test_any_text_is_a_timestamp_or_a_value_error(text: str) -> None:
    """Nothing else can come out."""
    with suppress(ValueError):
        assert timestamps.normal_form(text).endswith("Z")


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_and_back(ms: int) -> None:
    """Exact over all years; corrections are decided by it."""
    kept = timestamps.from_ms(ms)

    assert timestamps.to_ms(kept) == ms
    assert timestamps.normal_form(kept) == kept
    assert datetime.fromisoformat(kept) == EPOCH + timedelta(milliseconds=ms)


@pytest.mark.parametrize("text", ["2026-11-20T17:19:10.940Z", "2026-11-20", "now"])
def test_only_the_normal_form_becomes_milliseconds(text: str) -> None:
    """Anything else was not kept by the log."""
    with pytest.raises(ValueError, match=r"normal form|RFC 3339"):
        timestamps.to_ms(text)
