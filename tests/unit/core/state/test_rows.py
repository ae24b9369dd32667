"""The state: the latest operation of each object."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, page
from tidings.core.model.operations import Operation, object_key, parse_line
from tidings.core.state.rows import bucket_of, project

NAMES = st.lists(st.sampled_from(["a", "/", "%", "%2F", "%25"]), min_size=1, max_size=3).map(
    "".join
)
LINES = st.builds(
    line,
    st.sampled_from("abc"),
    st.sampled_from(["insert", "update", "delete"]),
    data=st.integers(),
)


@given(NAMES, NAMES, NAMES, NAMES)
@example("/", "x", "%2F", "x")
@example("a/b", "c", "a", "b/c")
def test_O61_two_objects_never_share_a_key(type1: str, id1: str, type2: str, id2: str) -> None:
    """Slashes and percent signs are allowed anywhere in type and id."""
    one = object_key(Operation("update", type1, id1, ()))
    other = object_key(Operation("update", type2, id2, ()))

    assert (one == other) == ((type1, id1) == (type2, id2))


def test_O61_oplogs_collision() -> None:
    """`a/b` + `c` and `a` + `b/c` were one row there."""
    assert object_key(Operation("update", "a/b", "c", ())) == "a%2Fb/c"
    assert object_key(Operation("update", "a", "b/c", ())) == "a/b/c"


@pytest.mark.parametrize(("key", "bucket"), [("video/x1", 53), ("\u00e4/\u20ac", 3), ("", 0)])
def test_buckets_are_the_same_for_ever(key: str, bucket: int) -> None:
    """A change of these numbers would lose every row that is stored."""
    assert bucket_of(key) == bucket


@given(st.lists(st.lists(LINES, max_size=5), max_size=5))
def test_O59_the_rows_are_the_fold_of_the_pages(batches: list[list[str]]) -> None:
    """The last operation of each object in log order, whatever its timestamp; fillers add none."""
    pages = [page(number, *lines, at_ms=NOW + number) for number, lines in enumerate(batches, 1)]

    expected = {}
    for number, lines in enumerate(batches, 1):
        for slot, kept in enumerate(lines):
            expected[parse_line(kept).id] = (number, slot, kept)
    rows = project(pages, tombstone_ms=5)
    assert {row.key.partition("/")[2]: (row.page, row.slot, row.line) for row in rows} == expected
    assert len(rows) == len(expected)


def test_deleted_objects_are_remembered_for_a_while() -> None:
    """The time counts from the commit of their page; other objects are kept forever."""
    pages = [page(1, line("a"), line("b"), at_ms=NOW), page(2, line("a", "delete"), at_ms=NOW + 7)]
    deleted, living = sorted(project(pages, tombstone_ms=100), key=lambda row: row.key)

    assert (deleted.deleted, deleted.expires_ms, deleted.at_ms) == (True, NOW + 107, NOW + 7)
    assert (living.deleted, living.expires_ms, living.at_ms) == (False, 0, NOW)


def test_an_object_that_comes_back_is_no_tombstone() -> None:
    """Deleted and inserted again."""
    (row,) = project([page(1, line("a", "delete"), line("a"))], tombstone_ms=1)

    assert not row.deleted and row.expires_ms == 0
