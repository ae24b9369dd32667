"""Whereabouts: where objects stand, from rows and pages, and what follows for a correction."""

from __future__ import annotations

import pytest

from tests.unit.core.scene import NOW, line, page
from tidings.core.state.rows import Row
from tidings.core.sync.corrections import (
    NOWHERE,
    Conflicts,
    Correction,
    Position,
    Verdict,
    correction,
)

NEW = line("a", "update", data="new")
OTHER = line("a", "update", data="other")
AT = Position(3, 0)


def wanted(at: Position = AT) -> Correction:
    return correction(NEW, at)


def row(number: int, text: str = OTHER, slot: int = 0) -> Row:
    return Row("video/a", number, slot, NOW, text)


@pytest.mark.parametrize(
    ("at", "rows", "verdict"),
    [
        (Position(3, 0), [row(3)], Verdict.STANDS),
        (Position(3, 0), [row(3, NEW)], Verdict.STANDS),
        (Position(3, 0), [row(3, slot=1)], Verdict.MOVED),
        (Position(3, 0), [row(4)], Verdict.MOVED),
        (Position(3, 0), [row(2)], Verdict.MOVED),
        (Position(3, 0), [row(4, NEW)], Verdict.DONE),
        (Position(3, 0), [], Verdict.MOVED),
        (NOWHERE, [], Verdict.STANDS),
        (NOWHERE, [row(1)], Verdict.MOVED),
        (NOWHERE, [row(1, NEW)], Verdict.DONE),
    ],
)
def test_a_correction_needs_its_object_just_where_it_was(
    at: Position, rows: list[Row], verdict: Verdict
) -> None:
    """Anywhere else it moved, unless what it was moved by says the same."""
    where = Conflicts([wanted(at)], page=5)

    where.see_rows(rows)

    assert where.verdict(wanted(at)) is verdict


def test_the_log_is_newer_than_the_rows_or_older() -> None:
    """The state may be ahead of the checkpoint it was read behind; the later one counts."""
    where = Conflicts([wanted()], page=3)
    where.see_rows([row(5, OTHER, slot=1)])

    where.see_pages([page(4, NEW)])
    assert where.verdict(wanted()) is Verdict.MOVED

    where.see_pages([page(5, NEW, OTHER)])
    assert where.verdict(wanted()) is Verdict.MOVED

    where.see_pages([page(6, line("b"), NEW)])
    assert where.verdict(wanted()) is Verdict.DONE
    assert where.page == 6


def test_pages_are_seen_without_a_hole() -> None:
    """What stands in a page nobody has seen cannot be ruled out."""
    where = Conflicts([wanted()], page=3)

    with pytest.raises(AssertionError):
        where.see_pages([page(5, NEW)])


def test_others_are_not_remembered() -> None:
    """However long the log is."""
    where = Conflicts([wanted()], page=0)

    where.see_pages([page(1, *(line(f"x{at}") for at in range(100)))])

    assert where._at == {}
