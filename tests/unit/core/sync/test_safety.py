"""What stops a sync before it does harm."""

from __future__ import annotations

import pytest

from tidings.core.sync.dumps import Found, Objection, Planned, check_dump, check_plan, check_rebuild


def code(objection: Objection | None) -> str:
    return "" if objection is None else objection.code


def test_an_empty_dump_is_refused() -> None:
    """Also where it says itself that it is empty: nobody means to have no data."""
    assert code(check_dump(Found(0))) == "empty_dump"
    assert code(check_dump(Found(0, declared=0))) == "empty_dump"


@pytest.mark.parametrize("lines", [9, 11])
def test_a_dump_of_another_length_is_refused(lines: int) -> None:
    """Whoever says how long it is, its end line or the command."""
    for objection in (check_dump(Found(lines, declared=10)), check_dump(Found(lines), expected=10)):
        assert code(objection) == "truncated_dump"
        assert objection is not None and f"holds {lines} objects" in objection.sentence


def test_a_whole_dump_passes() -> None:
    """As long as it says, or without anybody saying."""
    assert check_dump(Found(10, declared=10), expected=10) is None
    assert check_dump(Found(10)) is None


@pytest.mark.parametrize(
    ("part", "whole", "share_max", "stops"),
    [
        (10, 100, 0.1, False),
        (11, 100, 0.1, True),
        (0, 0, 0.1, False),
        (0, 5, 0.1, False),
        (1, 1, 0.1, True),
        (5, 5, 1, False),
    ],
)
def test_more_than_the_share_stops_a_plan_or_a_rebuild(
    part: int, whole: int, share_max: float, stops: bool
) -> None:
    """Too many deletes, or a log that knows too little: it is more likely the wrong log."""
    plan = check_plan(Planned(part, whole), share_max=share_max)
    rebuild = check_rebuild(part, whole, share_max=share_max)

    assert code(plan) == ("too_many_deletes" if stops else "")
    assert code(rebuild) == ("too_many_aliens" if stops else "")
