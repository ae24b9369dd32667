"""Removed parents: the parents that an operation took away from its object."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import FEED, NOW, PAGE_MS, TOMBSTONE_MS, Scene, line, op, page
from tidings.core.model.operations import object_key, parse_line
from tidings.core.model.pages import Page
from tidings.core.state.removed_parents import RemovedBySlot, RemovedParents, encode, removed_by
from tidings.core.state.rows import Row, project

EVENTS = st.sampled_from(["insert", "update", "delete"])
LINES = st.builds(
    line, st.sampled_from("ab"), EVENTS, parents=st.lists(st.sampled_from("pqr"), max_size=2)
)
LOGS = st.lists(st.lists(LINES, max_size=3), min_size=1, max_size=6).map(
    lambda batches: [page(number, *lines) for number, lines in enumerate(batches, 1)]
)


def left_by(
    pages: Sequence[Page], standing: Sequence[Row] = (), forgotten_ms: int = 0
) -> dict[int, RemovedBySlot]:
    """Return the parents that each page removes; pages that need no entry are left out."""
    worked_out = removed_by(pages, standing, page_ms=PAGE_MS, forgotten_ms=forgotten_ms)
    return {each.page: each.by_slot for each in worked_out}


def brute_force(pages: Sequence[Page]) -> dict[int, RemovedBySlot]:
    """Compute the same from the whole log."""
    parents: dict[str, set[str]] = {}
    left: dict[int, RemovedBySlot] = {}
    for each in pages:
        of_page = {}
        for slot, text in enumerate(each.lines):
            operation = parse_line(text)
            gone = parents.get(object_key(operation), set()) - set(operation.parents)
            if gone:
                of_page[slot] = tuple(sorted(gone))
            deleted = operation.event == "delete"
            parents[object_key(operation)] = set() if deleted else set(operation.parents)
        if each.body:
            left[each.number] = of_page
    return left


def rows(pages: Sequence[Page]) -> list[Row]:
    return project(pages, tombstone_ms=TOMBSTONE_MS)


@given(LOGS, st.integers(0, 6))
def test_however_the_log_is_cut_into_runs(pages: list[Page], cut: int) -> None:
    """The result of runs that start from rows equals that of the whole log."""
    expected = brute_force(pages)

    assert left_by(pages[:cut]) | left_by(pages[cut:], rows(pages[:cut])) == expected


@given(LOGS, st.integers(0, 6), st.integers(0, 6))
def test_a_run_that_is_repeated_never_says_anything_else(
    pages: list[Page], began: int, reached: int
) -> None:
    """A run from page *began* on crashed after it had written the rows up to *reached*, all of them
    or some. The next run finds the same parents, or leaves the page out.
    """
    expected = brute_force(pages)
    written = rows(pages[: max(began, reached)])
    before = {row.key: row for row in rows(pages[:began])}

    for count in range(len(written) + 1):
        standing = [*{**before, **{row.key: row for row in written[:count]}}.values()]
        again = left_by(pages[began:], standing)
        assert again.items() <= expected.items()
        assert all(number in again for number in expected if number > max(began, reached))


def test_a_tombstone_that_has_expired_hides_nothing() -> None:
    """A run wrote it and crashed; when its page is handled again much later, it does not count as
    new."""
    pages = [page(1, line("a", parents=["p"])), page(2, line("a", "delete"), line("b"))]
    gone_by = pages[1].at_ms

    assert left_by(pages[1:], rows(pages[:1])) == {2: {0: ("p",)}}
    assert left_by(pages[1:], forgotten_ms=gone_by) == {}
    assert left_by(pages[1:], forgotten_ms=gone_by - 1) == {2: {}}


def test_what_an_old_run_knows_itself_is_known() -> None:
    """Only the first operation of an object without a row is in doubt."""
    pages = [page(1, line("a", parents=["p"])), page(2, line("a"))]

    assert left_by(pages, forgotten_ms=pages[0].at_ms + 10**9) == {2: {0: ("p",)}}


def test_a_page_whose_removed_parents_fit_no_item_stays_unknown() -> None:
    """A page of objects that all lose their 64 long parents: readers take it as unknown."""
    lost = {slot: tuple(f"{slot * 64 + at:0640x}" for at in range(64)) for slot in range(400)}
    noise = {slot: tuple(str(hash((slot, at)) ** 9) for at in range(64)) for slot in range(1000)}

    assert encode({0: ("p",)}) == '{"0":["p"]}'
    assert isinstance(encode(lost), bytes)
    assert encode(noise) is None


def test_removed_parents_expire_with_their_page() -> None:
    """They are kept as long as pages."""
    (removed_parents,) = removed_by([page(1, line("a"))], (), page_ms=PAGE_MS, forgotten_ms=0)

    assert removed_parents == RemovedParents(1, "{}", NOW + PAGE_MS)


def test_settled_is_what_the_state_has_handled(scene: Scene) -> None:
    """Whether or not there was anything to write down."""
    assert scene.removed_parents_reader.until(FEED) == 0

    scene.post(op("a"))
    assert scene.removed_parents_reader.until(FEED) == 0

    scene.project()
    assert scene.removed_parents_reader.until(FEED) == 1


def test_unknown_pages_are_not_in_it(scene: Scene) -> None:
    """A page that is known to leave nothing is."""
    scene.removed_parents.write(FEED, [RemovedParents(1, '{"0":["p"]}'), RemovedParents(3, "{}")])

    left = scene.removed_parents_reader.by_page(FEED, [page(1), page(2), page(3)])

    assert left == {1: {0: ("p",)}, 3: {}}
    assert scene.removed_parents_reader.by_page(FEED, []) == {}
