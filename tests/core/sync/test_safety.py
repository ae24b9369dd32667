"""What stops a sync before it does harm."""

from __future__ import annotations

import pytest
from tidings.core.sync.safety import (
    Found,
    Objection,
    Planned,
    check_dump,
    check_plan,
    check_rebuild,
)


def code(objection: Objection | None) -> str:
    return "" if objection is None else objection.code


def test_an_empty_dump_is_refused() -> None:
    """Also where it says itself that it is empty: nobody means to have no data."""
    assert code(check_dump(Found(0))) == "empty_dump"
    assert code(check_dump(Found(0, declared=0))) == "empty_dump"


@pytest.mark.parametrize("lines", [9, 11])
def test_a_dump_of_another_length_is_refused(lines: int) -> None:
    """Whoever says how long it is, its end line or the command."""
    for found in (check_dump(Found(lines, declared=10)), check_dump(Found(lines), expected=10)):
        assert code(found) == "truncated_dump"
        assert found is not None and f"holds {lines} objects" in found.sentence


def test_a_whole_dump_passes() -> None:
    """As long as it says, or without anybody saying."""
    assert check_dump(Found(10, declared=10), expected=10) is None
    assert check_dump(Found(10)) is None


@pytest.mark.parametrize(
    ("deletes", "objects", "stops"),
    [(10, 100, False), (11, 100, True), (0, 0, False), (0, 5, False), (1, 1, True)],
)
def test_too_many_deletes_stop_a_plan(deletes: int, objects: int, stops: bool) -> None:
    """More than the share; the share itself is allowed, and so is deleting nothing of nothing."""
    found = check_plan(Planned(deletes, objects), share_max=0.1)
    assert (code(found) == "too_many_deletes") is stops


def test_all_may_be_deleted_where_it_is_allowed() -> None:
    """A share of 1 stops nothing."""
    assert check_plan(Planned(5, 5), share_max=1) is None


@pytest.mark.parametrize(
    ("aliens", "rows", "stops"),
    [(10, 100, False), (11, 100, True), (0, 0, False), (1, 1, True)],
)
def test_a_log_that_knows_too_little_stops_a_rebuild(aliens: int, rows: int, stops: bool) -> None:
    """It is more likely the wrong log than a wrong state."""
    found = check_rebuild(aliens, rows, share_max=0.1)
    assert (code(found) == "too_many_aliens") is stops
