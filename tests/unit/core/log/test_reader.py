"""Reading: the contiguous prefix, and the meaning of a missing number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryLog
from tests.unit.core.scene import FEED, NOW, Scene, line, page
from tidings.core import limits
from tidings.core.log import reader
from tidings.core.log.reader import Gap, PagesLost, Run
from tidings.core.model.cursors import START
from tidings.core.model.pages import Page, Pages

NUMBERS = st.sets(st.integers(1, 12))


def put(scene: Scene, *numbers: int, at_ms: int = NOW) -> None:
    """Append pages under *numbers*; the counter is at the last one."""
    while scene.log.head(FEED) < max(numbers, default=0):
        scene.log.take(FEED)
    for number in numbers:
        scene.log.put(FEED, Page(number, line(f"x{number}"), f"id{number}", at_ms))


def numbers(run: Run) -> list[int]:
    return [page.number for page in run.pages]


@given(NUMBERS, st.integers(0, 12))
def test_the_contiguous_prefix_is_the_definition(present: set[int], after: int) -> None:
    """The prefix is the longest run of numbers after *after*."""
    pages = [page(number) for number in sorted(present) if number > after]
    expected = 0
    while after + expected + 1 in present:
        expected += 1

    assert reader.contiguous(pages, after) == expected


@given(NUMBERS, st.integers(0, 12), st.none() | st.integers(1, 12))
def test_a_read_never_skips(present: set[int], after: int, limit: int | None) -> None:
    """For any log and any limit a read returns N, N + 1, ... or nothing."""
    scene = Scene()
    put(scene, *present)

    run = scene.reader.read(FEED, after, limit)

    assert numbers(run) == list(range(after + 1, after + 1 + len(run.pages)))
    if not run.pages:
        assert run.waiting == any(number > after for number in present)
    elif not run.more and not run.waiting:
        assert run.pages[-1].number == max(present)


@given(NUMBERS)
def test_the_frontier_is_the_end_of_the_prefix(present: set[int]) -> None:
    """The search may start at any page of the prefix."""
    scene = Scene()
    put(scene, *present)
    end = reader.contiguous([page(number) for number in sorted(present)], 0)

    places = {scene.reader.frontier(FEED, hint) for hint in range(end + 1)}

    assert [place.page for place in places] == [end]
    assert places == ({page(end).end} if end else {START})


def test_before_a_hole(scene: Scene) -> None:
    """Its writer may still write it, so later pages must wait."""
    put(scene, 1, 2, 4)

    assert numbers(run := scene.reader.read(FEED, 0)) == [1, 2]
    assert run.waiting and not run.more and not run.trimmed
    assert scene.reader.read(FEED, 2) == Run([], waiting=True, floor=1)
    assert numbers(scene.reader.read(FEED, 3)) == [4]


def test_below_the_floor_it_is_history(scene: Scene) -> None:
    """It is never a hole: the result is trimmed, with the floor to resume from."""
    put(scene, 5, 6)
    scene.log.raise_floor(FEED, 5)

    run = scene.reader.read(FEED, 2)
    assert (run.pages, run.trimmed, run.floor) == ([], True, 5)
    assert numbers(scene.reader.read(FEED, 4)) == [5, 6]
    assert scene.reader.frontier(FEED, 0).page == 6


def test_the_way_to_the_frontier_leads_past_what_lingers(scene: Scene) -> None:
    """Pages below the floor remain, with gaps: the frontier is still found after the floor."""
    put(scene, 1, 2, 5, 6)
    scene.log.raise_floor(FEED, 5)

    assert [place.page for place, _ in scene.reader.walk(FEED, 0)] == [2, 4, 6]
    assert [reached for _, reached in scene.reader.walk(FEED, 0)] == [False, False, True]
    assert scene.reader.frontier(FEED, 0).page == 6


def test_expired_pages_that_linger_are_still_read(scene: Scene) -> None:
    """This includes pages below the floor: they are valid as long as there is no gap."""
    put(scene, 1, 2, 3)
    scene.log.raise_floor(FEED, 3)

    assert numbers(scene.reader.read(FEED, 0)) == [1, 2, 3]


def test_everything_was_trimmed(scene: Scene) -> None:
    """The floor is after the last page: a reader from before it gets *trimmed*."""
    scene.log.raise_floor(FEED, 8)

    assert scene.reader.read(FEED, 3).trimmed
    assert not scene.reader.read(FEED, 7).trimmed


def test_a_read_that_is_cut_short_says_so(scene: Scene) -> None:
    """The caller's limit cuts it."""
    put(scene, 1, 2, 3)
    assert scene.reader.read(FEED, 0, 2).more
    assert not scene.reader.read(FEED, 2, 2).more


class Replicated(MemoryLog):
    """Notes which reads were eventually consistent; those miss the pages *missed*."""

    def __init__(self, *missed: int) -> None:
        super().__init__()
        self.missed, self.eventual = set(missed), list[bool]()

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        self.eventual.append(eventual)
        return super().read(feed, after, limit, eventual=eventual)

    def _misses(self, feed: str, number: int) -> bool:
        return number in self.missed


@given(NUMBERS, NUMBERS, st.integers(0, 12), st.integers(0, 12))
def test_what_a_stale_read_misses_is_neither_end_nor_hole(
    present: set[int], missed: set[int], after: int, floor: int
) -> None:
    """Pages that a replica lacks are found, although followers have handled them: the result is
    that of a consistent read.
    """
    stale, whole = Scene(log=Replicated(*missed)), Scene()
    runs = []
    for scene in (stale, whole):
        put(scene, *(number for number in present if number >= floor))
        scene.set_checkpoint(
            "state", reader.contiguous([page(number) for number in sorted(present)], 0)
        )
        scene.log.raise_floor(FEED, floor)
        strong = replace(scene.reader, ends={FEED: after})
        runs.append((scene.reader if scene is stale else strong).read(FEED, after))

    assert runs[0] == runs[1]


def test_only_at_its_end_a_catch_up_reads_strongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns each page once, though replicas lack the last ones."""
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 40 * 130)
    log = Replicated(*range(380, 401))
    scene = Scene(log=log)
    put(scene, *range(1, 401))

    after, seen, more = 0, list[int](), True
    while more:
        run = scene.reader.read(FEED, after)
        seen += numbers(run)
        after, more = seen[-1], run.more

    assert seen == list(range(1, 401))
    assert len(log.eventual) > 8 and log.eventual.count(False) == 1
    assert not log.eventual[-1]


def test_who_is_near_the_end_asks_once() -> None:
    """Near the last known end one consistent read is enough; far from it a replica is read
    first."""
    log = Replicated()
    scene = Scene(log=log)
    put(scene, *range(1, 200))
    scene.reader.read(FEED, 190)
    log.eventual.clear()

    put(scene, 200)
    for after in (199, 200 - limits.NEAR_PAGES, 200 + limits.NEAR_PAGES):
        scene.reader.read(FEED, after)
    assert log.eventual == [False] * 3
    scene.reader.read(FEED, 0, limits.NEAR_PAGES)
    assert log.eventual == [False] * 4
    scene.reader.read(FEED, 0)
    assert log.eventual == [False] * 4 + [True, False]


def test_the_end_of_a_log_that_runs_away_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read at what was the end is cut short: the next one is for a replica again."""
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 40 * 130)
    log = Replicated()
    scene = Scene(log=log)
    scene.reader.read(FEED, 0)
    put(scene, *range(1, 200))
    log.eventual.clear()

    after = scene.reader.read(FEED, 0).pages[-1].number
    scene.reader.read(FEED, after)
    assert log.eventual == [False, True]


def test_what_was_given_up_is_not_read_in_vain() -> None:
    """No consistent read starts below the floor: it would read the whole log."""
    log = Replicated()
    scene = Scene(log=log)
    put(scene, *range(100, 200))
    scene.log.raise_floor(FEED, 100)

    assert scene.reader.read(FEED, 0) == Run([], trimmed=True, floor=100)
    assert log.eventual == [True]


def test_what_comes_before_a_lost_page_is_told(scene: Scene) -> None:
    """The read that ends before the lost page returns them; the error comes for a reader right
    before it.
    """
    put(scene, 1, 2, 4)
    scene.set_checkpoint("state", 4)

    assert numbers(scene.reader.read(FEED, 0)) == [1, 2]
    with pytest.raises(PagesLost):
        scene.reader.read(FEED, 2)


def test_one_page(scene: Scene) -> None:
    """By its number, if it is there."""
    put(scene, 2)

    page = scene.reader.at(FEED, 2)
    assert page is not None and page.number == 2
    assert [scene.reader.at(FEED, number) for number in (-1, 0, 1, 3, 2**40)] == [None] * 5


@pytest.mark.parametrize(
    ("missing", "age_ms", "gap"),
    [
        (7, 0, Gap.IN_FLIGHT),
        (7, limits.HOLE_GRACE_MS - 1, Gap.IN_FLIGHT),
        (7, limits.HOLE_GRACE_MS, Gap.OVERDUE),
        (4, 0, Gap.TRIMMED),
        (4, limits.HOLE_GRACE_MS, Gap.TRIMMED),
        (7, -5000, Gap.IN_FLIGHT),
        (7, -limits.CLOCK_SKEW_MS_MAX, Gap.IN_FLIGHT),
        (7, -limits.CLOCK_SKEW_MS_MAX - 1, Gap.OVERDUE),  # the clock was set back since
        (7, limits.HOLE_LOST_MS - 1, Gap.OVERDUE),
        (7, limits.HOLE_LOST_MS, Gap.LOST),
        (6, 0, Gap.LOST),
        (4, limits.HOLE_LOST_MS, Gap.TRIMMED),
    ],
)
def test_what_a_gap_is(missing: int, age_ms: int, gap: Gap) -> None:
    """It depends on the floor, the checkpoints, and the age of the page after it."""
    beyond = page(9, at_ms=NOW - age_ms)
    found = reader.classify_gap(missing, beyond, floor=5, handled=6, now_ms=NOW, expiring_ms=NOW)
    assert found is gap


def test_a_page_that_was_there_is_lost_and_never_filled(scene: Scene) -> None:
    """A follower handled it: every reader gets an error, however young the next page is."""
    put(scene, 1, 4)
    scene.set_checkpoint("state", 3)
    assert numbers(scene.reader.read(FEED, 0)) == [1]
    with pytest.raises(PagesLost) as lost:
        scene.reader.read(FEED, 1)
    assert (lost.value.first, lost.value.beyond) == (2, 4)
    assert scene.counted["PagesLost"] == 2

    scene.now_ms += limits.HOLE_GRACE_MS
    assert not scene.filler.close_hole(FEED, 1)
    assert numbers(Run(scene.log.read(FEED, 0))) == [1, 4]
    assert scene.reader.frontier(FEED, 0).page == 1


def test_a_hole_that_nobody_closed_for_a_day_is_lost(scene: Scene) -> None:
    """It may be an expired page; until then only a late writer can be the reason."""
    put(scene, 1, 3)
    scene.now_ms += limits.HOLE_LOST_MS - 1
    assert scene.reader.read(FEED, 1).waiting
    scene.now_ms += 1
    with pytest.raises(PagesLost):
        scene.reader.read(FEED, 1)


def test_a_page_that_came_and_was_handled_while_we_looked_is_not_lost(scene: Scene) -> None:
    """It was missing when the log was read, and there when the checkpoints were."""
    put(scene, 1, 3)
    checkpoints = scene.followers.checkpoints

    def meanwhile(feed: str) -> dict[str, int]:
        scene.log.put(FEED, Page(2, line("late"), "late", NOW))
        scene.set_checkpoint("state", 3)
        return checkpoints(feed)

    scene.followers.checkpoints = meanwhile  # type: ignore[method-assign]
    assert scene.reader.read(FEED, 1).waiting
    assert numbers(scene.reader.read(FEED, 1)) == [2, 3]


@pytest.mark.parametrize(
    ("present", "floor", "age_ms", "closed", "fillers"),
    [
        ([1, 5], 1, limits.HOLE_GRACE_MS, True, [2, 3, 4]),
        ([1, 5], 1, limits.HOLE_GRACE_MS - 1, False, []),
        ([1, 5], 1, limits.HOLE_LOST_MS, False, []),
        ([5], 5, limits.HOLE_GRACE_MS, False, []),
        ([1, 2, 3], 1, 0, True, []),
        ([1], 1, 10 * limits.HOLE_GRACE_MS, False, []),
    ],
    ids=["overdue", "in flight", "lost", "history", "closed by itself", "no page behind it"],
)
def test_which_holes_are_closed(
    scene: Scene, present: list[int], floor: int, age_ms: int, closed: bool, fillers: list[int]
) -> None:
    """All numbers of an overdue hole are closed; then readers continue."""
    put(scene, *present)
    scene.log.take(FEED)
    scene.log.raise_floor(FEED, floor)
    scene.now_ms += age_ms

    assert scene.filler.close_hole(FEED, 1) is closed
    pages = scene.log.read(FEED, 0)
    assert len(pages) == len(present) + len(fillers)
    assert [page.number for page in pages if not page.body] == fillers
    assert scene.counted["HolesFilled"] == len(fillers)


def test_a_filler_is_as_old_as_what_follows_it(scene: Scene) -> None:
    """A cursor on it counts as a time once the page is trimmed: this must not be the end of the
    outage.
    """
    put(scene, 1, 3)
    scene.now_ms += 6 * 3_600_000
    scene.filler.close_hole(FEED, 1)

    assert [page.at_ms for page in scene.log.read(FEED, 0)] == [NOW, NOW, NOW]


def test_the_filler_loses_against_the_late_writer(scene: Scene) -> None:
    """The first write wins: the page stays and no hole is counted."""
    put(scene, 1, 3, at_ms=NOW - limits.HOLE_GRACE_MS)
    (beyond,) = scene.log.read(FEED, 1, 1)
    scene.log.put(FEED, Page(2, line("late"), "late", NOW))

    assert beyond.number == 3
    assert scene.filler.close_hole(FEED, 1)
    assert scene.log.read(FEED, 1, 1)[0].lines == [line("late")]
    assert scene.counted["HolesFilled"] == 0
