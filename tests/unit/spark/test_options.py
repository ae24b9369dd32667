"""Options, the work between two offsets, and how it is divided into tasks."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.core.model.cursors import PAGE_END, START, Place, Replication
from tidings.core.model.pages import Page
from tidings.spark import backends, options, reader
from tidings.spark.columns import Piece, of_page
from tidings.spark.options import Log, Offset, Rows, WrongOption

HERE = {"url": "http://127.0.0.1:8042"}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"maxpage": "1"}, "option maxpage: is unknown"),
        ({"maxPages": "0"}, "option maxPages: must be a whole number from 1"),
        ({"what": "rows"}, "option what: must be log or state, got 'rows'"),
        ({"feed": "No"}, "option feed: must be 1 to 63 of"),
        ({"types": ""}, "option types: must not be empty"),
        ({"endpoint": "http://x"}, "option url: more than one way to the feed"),
        ({"logTable": "l"}, "option stateTable: is required"),
        ({"archive": "file:///a"}, "option archive: is not valid with url"),
        ({"from": "archive"}, "option archive: is required with from=archive"),
        (
            {"password": "p", "passwordFile": "f"},
            "option passwordFile: is given together with password",
        ),
        ({"passwordFile": "nowhere"}, "option passwordFile: cannot read nowhere"),
    ],
)
def test_T39_what_breaks_a_rule_is_refused(given: dict[str, str], rule: str) -> None:
    """Each by the option's name and its rule, unknown ones too."""
    with pytest.raises(WrongOption, match=rule):
        options.parse(HERE | given)


def test_a_way_to_the_feed_is_needed() -> None:
    """Nothing is guessed."""
    with pytest.raises(WrongOption, match="option url: is required"):
        options.parse({"feed": "main"})


def test_a_password_is_in_no_text(tmp_path: Path) -> None:
    """Printed options contain no password, whether it is given directly or in a file."""
    file = tmp_path / "password"
    file.write_text("correct horse\n")

    given = options.parse(HERE | {"password": "correct horse"})
    kept = options.parse(HERE | {"passwordFile": str(file)})

    assert given.where.password == kept.where.password == "correct horse"
    assert "horse" not in f"{given!r} {kept!s}"


COPY = Replication(0, 9, 0, tombstones=False)


def place(page: int, slot: int = PAGE_END) -> Place:
    return Place(page, slot, 100)


def after(copy: Replication, bucket: int) -> Replication:
    return Replication(copy.since_s, copy.page, bucket, copy.tombstones)


def test_offsets_are_cursors_in_json() -> None:
    """What Spark keeps can be read back, and is what any client of the feed resumes from."""
    offset = Offset(place(7), COPY)

    assert offset.as_json() == {"cursor": place(7).encode(), "begun": COPY.encode()}
    assert options.offset_from(offset.as_json()) == offset


def test_a_copy_goes_on_bucket_by_bucket_and_then_in_the_log() -> None:
    """Each batch depends only on its two offsets."""
    ends = [Offset(at, COPY) for at in (COPY, after(COPY, 40), after(COPY, 64), place(12))]

    found = [options.between(one, other) for one, other in itertools.pairwise(ends)]

    assert found == [
        Rows(COPY, 40, resets=False),
        Rows(after(COPY, 40), 64, resets=False),
        Log(Place(9, PAGE_END, 0), place(12)),
    ]
    assert options.between(ends[3], ends[3]) is None


def test_a_copy_of_everything_behind_something_else_resets() -> None:
    """Earlier rows must be dropped, unless the copy includes all later changes."""
    by_time = Replication(50, 9, 8, tombstones=True)

    all_anew = options.between(Offset(place(3), COPY), Offset(after(COPY, 8), COPY))
    changed = options.between(Offset(place(3), COPY), Offset(by_time, COPY))

    assert all_anew == Rows(COPY, 8, resets=True)
    assert changed == Rows(after(by_time, 0), 8, resets=False)


def test_a_first_batch_that_is_read_again_begins_where_it_began() -> None:
    """Spark asks for the start again, and `now` has moved: the start in the end offset counts."""
    moved, end = Offset(place(20), place(20)), Offset(place(15), place(5))

    assert options.between(moved, end) == Log(place(5), place(15))


@given(st.integers(0, 30), st.integers(0, 40), st.integers(1, 9), st.booleans())
def test_stretches_follow_each_other(first: int, pages: int, count: int, within: bool) -> None:
    """Nothing is left out, nothing comes twice, and there are not more than were asked for."""
    begin = Place(first, 3 if within else PAGE_END, 1)
    last = Place(first + pages, PAGE_END, 1)

    found = backends.even(begin, last, count)

    assert len(found) <= count
    assert not found or (found[0].after, found[-1].last) == (begin, last)
    assert all(one.last == other.after for one, other in itertools.pairwise(found))
    assert bool(found) == (within or pages > 0)


def test_a_stretch_may_begin_and_end_within_a_page() -> None:
    """Operations outside the two cursors are cut off, at the start and at the end."""
    pieces = [of_page(Page(number, "a\nb\nc", "", 1)) for number in (1, 2, 3)]

    found = list(backends.within(iter(pieces), Log(Place(1, 1, 0), Place(3, 0, 0))))

    assert ["".join(piece.lines) for piece in found] == ["c", "abc", "a"]
    assert found[0] == Piece(["c"], [1], range(2, 3), [1])


def test_buckets_are_shared_by_tasks() -> None:
    """Each bucket is in one task; only the first task has `reset`."""
    found = reader.rows_in_tasks(after(COPY, 3), 64, 4, resets=True)

    assert [(task.copy.bucket, task.end) for task in found] == [
        (3, 18),
        (18, 33),
        (33, 48),
        (48, 64),
    ]
    assert [task.resets for task in found] == [True, False, False, False]
    assert reader.rows_in_tasks(after(COPY, 64), 64, 4) == []
    assert place(1) > START
