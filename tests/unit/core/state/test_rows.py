"""The state: the latest operation of each object, removed parents and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes import MemoryTombstones
from tests.unit.core.following import held_after
from tests.unit.core.scene import FEED, NOW, PAGE_MS, TOMBSTONE_MS, Scene, line, op, page
from tests.unit.core.sync.test_apply import correct, corrector, part
from tidings.core import limits
from tidings.core.errors import PlanTooOld, Unavailable
from tidings.core.model.cursors import Place
from tidings.core.model.operations import Operation, object_key, parse_line
from tidings.core.model.pages import Page
from tidings.core.state import tombstones
from tidings.core.state.removed_parents import RemovedBySlot, RemovedParents, encode, removed_by
from tidings.core.state.rows import Row, bucket_of, project
from tidings.core.state.tombstones import Remembered

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


EVENTS = st.sampled_from(["insert", "update", "delete"])
PARENT_LINES = st.builds(
    line, st.sampled_from("ab"), EVENTS, parents=st.lists(st.sampled_from("pqr"), max_size=2)
)
LOGS = st.lists(st.lists(PARENT_LINES, max_size=3), min_size=1, max_size=6).map(
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


FOREIGN = 2**39  # the page of a foreign id: no log can have given that many

DAY = 24 * 3600 * 1000
SKEW = limits.CLOCK_SKEW_MS_MAX


def redeployed(scene: Scene, life_ms: int) -> None:
    """Change the retention as in `OPERATIONS.md`; the next run of the state notes it."""
    scene.projector = replace(scene.projector, runtime=replace(scene.runtime, tombstone_ms=life_ms))


@pytest.mark.parametrize("lives", [(21 * DAY,), (TOMBSTONE_MS + DAY, TOMBSTONE_MS, 21 * DAY)])
def test_a_deletion_is_told_after_the_retention_grew(scene: Scene, lives: tuple[int, ...]) -> None:
    """Its tombstone has expired under the earlier retention, so the client gets a reset and
    everything again.
    """
    cursor = scene.projected(op("x")).end.encode()
    scene.now_ms += 600_000
    scene.projected(op("x", "delete"))
    for life_ms in lives:
        redeployed(scene, life_ms)
        scene.projected(op("y"), op("z", "delete"))
        scene.now_ms += 8 * DAY // len(lives)
    scene.push()
    scene.retention_service.run(FEED)
    scene.log.expire(scene.now_ms)
    scene.state.expire(scene.now_ms)

    assert held_after(scene, cursor, {"x"}) == {"y"}


def test_a_plan_grows_too_old_by_the_tombstones_there_are(scene: Scene) -> None:
    """Half of the life that they were written with, not of the one they would have now."""
    scene.projected(op("z", "delete"))
    redeployed(scene, 40 * DAY)
    scene.projected(op("y", "delete"))
    scene.now_ms += 8 * DAY

    with pytest.raises(PlanTooOld):
        corrector(scene).apply(FEED, 1, part(correct("z")))


@pytest.mark.parametrize(
    ("at_ms", "since_ms"),
    [
        (NOW, NOW - 7 * DAY),
        (NOW + SKEW + 7 * DAY, NOW + SKEW),
        (NOW + 10 * DAY, NOW + SKEW),
        (NOW + SKEW + 21 * DAY, NOW + SKEW),
        (NOW + 30 * DAY, NOW + 9 * DAY),
    ],
)
def test_known_since(at_ms: int, since_ms: int) -> None:
    """The retention grows from 7 to 21 days at NOW: first the earlier one counts, then the change,
    then the new one.
    """
    remembered = Remembered(7 * DAY, 7 * DAY, 0).then(21 * DAY, NOW)

    assert remembered.known_since(at_ms) == since_ms


_CHANGES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12)), min_size=1, max_size=8)


@given(_CHANGES, st.integers(0, 20))
def test_no_deletion_that_is_gone_counts_as_known(
    changes: list[tuple[int, int]], after: int
) -> None:
    """This holds for any sequence of retentions, and for writers' clocks that are ahead."""
    noted, now, gone = Remembered(5 * DAY, 5 * DAY, 0), NOW, []
    for days, later in changes:
        noted = noted if noted.life_ms == days * DAY else noted.then(days * DAY, now)
        for late in (0, SKEW - 1):  # its page may be stamped ahead
            gone.append((now + late, now + late + days * DAY))
        gone.append((now - DAY, now - DAY + days * DAY))
        now += later * DAY // 2
        gone.append((now, now + days * DAY))
    now += after * DAY // 2
    since_ms = noted.known_since(now)

    assert all(deleted < since_ms for deleted, expires in gone if expires < now)


def test_a_note_is_written_once(scene: Scene) -> None:
    """It is written before the first tombstone under a setting, and before the first page of a
    feed."""
    scene.projected(op("a"))
    assert scene.tombstones.remembered(FEED) == Remembered(TOMBSTONE_MS, TOMBSTONE_MS, 0)
    scene.projected(op("a", "delete"))
    redeployed(scene, DAY)
    scene.projected(op("b"))
    assert scene.tombstones.remembered(FEED) == Remembered(TOMBSTONE_MS, TOMBSTONE_MS, 0)


def test_a_feed_of_an_earlier_release(scene: Scene) -> None:
    """It has no note, so its tombstones are assumed to have lived as long as the minimal
    retention."""
    assert tombstones.known_since(scene.tombstones, FEED, NOW) == NOW - limits.TOMBSTONE_MS_MIN
    note = tombstones.note(scene.tombstones, FEED, 21 * DAY, NOW, first=False)
    assert note == Remembered(21 * DAY, limits.TOMBSTONE_MS_MIN, NOW + SKEW)


def test_tombstones_of_another_deployment_may_live_shorter(scene: Scene) -> None:
    """A copy has its upstream's tombstones; objects deleted later are kept for the own
    retention."""
    tombstones.note(scene.tombstones, FEED, 21 * DAY, NOW, first=True)
    tombstones.note_copied(scene.tombstones, FEED, 21 * DAY, NOW)

    later = NOW + 10 * DAY
    assert tombstones.known_since(scene.tombstones, FEED, later) == NOW + SKEW


def test_nothing_is_written_where_the_note_is_not() -> None:
    """Of two functions with different settings, one that cannot save its note writes no
    tombstones."""

    class Contended(MemoryTombstones):
        def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
            return False

    scene = Scene(tombstones=Contended())
    scene.post(op("a", "delete"))
    with pytest.raises(Unavailable):
        scene.project()
    assert scene.rows() == {}


def test_two_functions_with_other_settings(scene: Scene) -> None:
    """The next writer notes its own setting; for earlier tombstones the smaller one counts."""
    for life_ms in (21 * DAY, TOMBSTONE_MS, 21 * DAY, TOMBSTONE_MS):
        redeployed(scene, life_ms)
        scene.projected(op("x", "delete"))
    remembered = scene.tombstones.remembered(FEED)

    assert remembered == Remembered(TOMBSTONE_MS, TOMBSTONE_MS, NOW + SKEW)


def test_half_a_minute_is_not_known(scene: Scene) -> None:
    """A cursor from before what is known gets `reset`."""
    scene.tombstones.remember(FEED, None, Remembered(21 * DAY, DAY, NOW))
    scene.projected(op("x"))
    scene.now_ms = NOW + DAY + 3 * 3600_000
    seconds = (NOW + 2 * 3600_000) // 1000

    assert scene.catch_up.start(FEED, Place(FOREIGN, 0, seconds)).resets
    assert not scene.catch_up.start(FEED, Place(FOREIGN, 0, seconds + 3600)).resets
