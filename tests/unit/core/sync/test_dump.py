"""What a line of a dump means."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.core.errors import InvalidOperation
from tidings.core.model.timestamps import normal_form
from tidings.core.sync.dumps import Described, End, moment_of, read_line, timestamp_of

LINE = b'{"type":"Video","id":"x1","parents":["user/a"],"timestamp":"2026-01-02T03:04:05.060Z"}'


def test_an_object_is_described() -> None:
    """By its key, its time, and its operation, whose event is still to be decided."""
    described = read_line(LINE)
    assert isinstance(described, Described)
    assert (described.key, described.moment) == ("video/x1", "2026-01-02T03:04:05.06")
    assert json.loads(described.line)["parents"] == ["user/a"]


def test_blank_lines_mean_nothing() -> None:
    """Whatever they are blank with."""
    assert [read_line(text) for text in (b"", b"\r", b" \t\r")] == [None] * 3


def test_an_end_line_counts() -> None:
    """An object that happens to have a field of that name is an object."""
    assert read_line(b'{"tidings":"end","lines":12}') == End(12)
    assert isinstance(read_line(LINE[:-1] + b',"tidings":"end"}'), Described)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"{", "must be JSON"),
        (b"7", "must be a JSON object"),
        (b'{"type":"a"}', "id: is required"),
        (b'{"tidings":"END","lines":1}', 'tidings: must be "end"'),
        (b'{"tidings":"end","lines":-1}', "lines: must be a whole number"),
        (b'{"tidings":"end","lines":true}', "lines: must be a whole number"),
        (b'{"tidings":"end"}', "lines: must be a whole number"),
    ],
)
def test_a_bad_line_says_why(text: bytes, sentence: str) -> None:
    """Field and rule, as a producer would be told."""
    with pytest.raises(InvalidOperation) as caught:
        read_line(text)
    assert sentence in str(caught.value)


@given(st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=2))
def test_moments_compare_as_time_does(times: list[datetime]) -> None:
    """As text; and they are timestamps again with their Z."""
    stamps = [normal_form(each.replace(tzinfo=UTC).isoformat()) for each in times]
    moments = [moment_of(f'{{"event":"insert","timestamp":"{each}",') for each in stamps]
    millis = [each.replace(microsecond=each.microsecond // 1000 * 1000) for each in times]
    ordered = sorted(zip(moments, millis, strict=True))
    assert [each for _, each in ordered] == sorted(millis)
    assert [timestamp_of(each) for each in moments] == stamps
