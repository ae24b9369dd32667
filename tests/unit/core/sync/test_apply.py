"""Correcting: a plan becomes pages, and no later change is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import MemoryLog
from tests.unit.core.following import caught_up, names, trimmed
from tests.unit.core.scene import FEED, FEEDS, NOW, TOMBSTONE_MS, Scene, line, op
from tests.unit.core.sync.reconcile import reconcile
from tidings.core import limits
from tidings.core.errors import InvalidOperation, PlanTooOld, Unavailable, UnknownFeed
from tidings.core.followers.follower import STATE
from tidings.core.model.feeds import FixedFeeds
from tidings.core.model.pages import FILLER_ID, Page, Pages, filler
from tidings.core.state.rows import Row
from tidings.core.sync import corrections
from tidings.core.sync.apply import Corrector, Outcome
from tidings.core.sync.corrections import NOWHERE, Correction, Position, correction
from tidings.core.sync.dumps import dump_line

LATER = "2031-01-01T00:00:00Z"


def corrector(scene: Scene) -> Corrector:
    return Corrector(
        states=scene.state,
        filler=scene.filler,
        runtime=scene.runtime,
        feed_names=FixedFeeds(FEEDS),
        tombstones=scene.tombstones,
    )


def part(*wanted: Correction) -> list[bytes]:
    return [corrections.encode(each).encode() for each in wanted]


def correct(name: str, at: Position = NOWHERE, event: str = "update", **fields: Any) -> Correction:
    return correction(line(name, event, **({"timestamp": LATER} | fields)), at)


def through(scene: Scene) -> int:
    return scene.followers.checkpoints(FEED).get(STATE, 0)


def plan(scene: Scene, *dump: str) -> list[bytes]:
    """Return the corrections that a dump of these objects, all newer than the log, implies now."""
    rows = [row for bucket in range(limits.BUCKETS) for row in scene.state.read(FEED, bucket)]
    lines = [dump_line({"type": "video", "id": name, "timestamp": LATER}) for name in dump]
    return part(*reconcile(lines, rows))


def outcome(applied: int, moved: int = 0, done: int = 0, **others: Any) -> Outcome:
    behind = others.get("behind", applied + moved + done)
    return Outcome(applied, moved, done, behind, complete=others.get("complete", True))


def bodies(scene: Scene) -> list[list[str]]:
    return [page.lines for page in scene.log.read(FEED, 0)]


A, B = correct("a", Position(1, 0)), correct("b", Position(1, 1))
A_DELETED = line("a", "delete")


class Meanwhile(MemoryLog):
    """Lets something happen just before the next number is taken or the next page is put."""

    def __init__(self) -> None:
        super().__init__()
        self.before_take: list[Callable[[], object]] = []
        self.before_put: list[Callable[[Page], object]] = []
        self.asked: list[str] = []

    def take(self, feed: str, operations: int = 0) -> int:
        if self.before_take:
            self.before_take.pop()()
        self.asked.append("take")
        return super().take(feed, operations)

    def put(self, feed: str, page: Page) -> str:
        if self.before_put:
            self.before_put.pop()(page)
        self.asked.append("put")
        return super().put(feed, page)

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        self.asked.append("read")
        return super().read(feed, after, limit, eventual=eventual)


class Overtaken(MemoryLog):
    """A filler is always faster."""

    def put(self, feed: str, page: Page) -> str:
        return super().put(feed, replace(page, body="", append_id=FILLER_ID))


@pytest.fixture
def log() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
def scene(log: Meanwhile) -> Scene:
    """Create objects a and b in the state, and c after it in the log."""
    scene = Scene(log=log)
    scene.projected(op("a", "insert"), op("b", "insert"))
    return scene


def test_O73_a_plan_is_applied_exactly(scene: Scene) -> None:
    """All of it and nothing mixed up, in its order; received, counted, known to the state."""
    wanted = plan(scene, "b", "c")

    assert corrector(scene).apply(FEED, through(scene), wanted) == outcome(3)

    assert bodies(scene)[1:] == [
        [correct("c", event="insert").line, correct("b").line, line("a", "delete")]
    ]
    assert scene.log.log_counter(FEED).operations == 2 + 3
    assert scene.counted["CorrectionsApplied"] == 3
    scene.project()
    assert scene.rows()["video/c"] == correct("c", event="insert").line


def test_O70_what_is_created_is_replicated(scene: Scene) -> None:
    """A copy sees it as any other insert; deleted objects are not sent."""
    corrector(scene).apply(FEED, through(scene), plan(scene, "b", "c"))
    scene.project()

    events = names(caught_up(scene, "0"))
    assert sorted(events) == ["insert b", "insert c", "live", "reset"]


def test_O71_a_second_run_does_nothing(scene: Scene) -> None:
    """This holds for the same plan, before and after the state has its corrections, and for a new
    plan.
    """
    wanted, at = plan(scene, "b", "c"), through(scene)
    corrector(scene).apply(FEED, at, wanted)
    head = scene.log.head(FEED)

    assert corrector(scene).apply(FEED, at, wanted) == outcome(0, done=3)
    scene.project()
    assert corrector(scene).apply(FEED, at, wanted) == outcome(0, done=3)
    assert plan(scene, "b", "c") == []
    assert scene.log.head(FEED) == head


def test_what_moved_before_is_left_alone(scene: Scene) -> None:
    """The change may be in the state, or only in the log; no number is taken needlessly."""
    wanted = part(A, B, correct("c"))
    scene.projected(op("a", "delete"))
    scene.post(op("b"), op("c", "insert"))

    assert corrector(scene).apply(FEED, 1, wanted) == outcome(0, moved=3)

    assert scene.log.head(FEED) == 3
    assert scene.counted["CorrectionsMoved"] == 3


@pytest.mark.parametrize(
    ("moment", "wanted", "expected", "pages"),
    [
        ("before_take", [A, B], outcome(1, moved=1), [[A_DELETED], [B.line]]),
        ("before_take", [A], outcome(0, moved=1), [[A_DELETED], []]),
        ("before_put", [A], outcome(1), [[A.line], [A_DELETED]]),
    ],
    ids=["some moved before the number", "all moved before the number", "after the number"],
)
def test_what_moves_between_the_look_and_the_page(
    scene: Scene,
    log: Meanwhile,
    moment: str,
    wanted: list[Correction],
    expected: Outcome,
    pages: list[list[str]],
) -> None:
    """An object that changes before the number is taken is left alone; if all changed, a filler is
    written. A change after the number comes after the correction, and wins.
    """
    getattr(log, moment).append(lambda *_: scene.post(op("a", "delete")))

    assert corrector(scene).apply(FEED, 1, part(*wanted)) == expected
    assert bodies(scene)[1:] == pages


def test_overtaken_it_looks_again(scene: Scene, log: Meanwhile) -> None:
    """A filler has the number: an operation on the object may come after it."""

    def overtake(page: Page) -> None:
        log.put(FEED, filler(page.number, at_ms=NOW, expires_ms=NOW))
        scene.post(op("a", "delete"))

    log.before_put.append(overtake)

    assert corrector(scene).apply(FEED, 1, part(A, B)) == outcome(1, moved=1)

    assert bodies(scene)[1:] == [[], [A_DELETED], [B.line]]
    assert scene.log.log_counter(FEED).operations == 2 + 2 + 1  # its own are counted once


def test_a_writer_in_flight_is_waited_for(scene: Scene, log: Meanwhile) -> None:
    """It may be writing an operation on the object below our number."""
    late = Page(scene.log.take(FEED), A_DELETED, "late", NOW)

    def waiting(ms: int) -> None:
        scene.wait(ms)
        if len(scene.waits) == 3:
            log.put(FEED, late)

    patient = replace(corrector(scene), runtime=replace(scene.runtime, await_writer=waiting))

    assert patient.apply(FEED, 1, part(A)) == outcome(0, moved=1)
    assert scene.waits == [limits.CORRECT_POLL_MS] * 3


def test_a_writer_that_died_holds_nobody_up(scene: Scene) -> None:
    """The number is given back before others would have to fill it; then the hole is closed."""
    scene.log.take(FEED)
    began = scene.now_ms

    assert corrector(scene).apply(FEED, 1, part(A)) == outcome(1)

    assert bodies(scene)[1:] == [[], [], [A.line]]
    given_back = next(page for page in scene.log.read(FEED, 2))
    assert given_back.at_ms - began < limits.HOLE_GRACE_MS
    assert scene.counted["HolesFilled"] == 1


def test_it_waits_within_the_grace_of_a_hole() -> None:
    """Otherwise a follower would fill its number whenever a writer is slow."""
    assert limits.CORRECT_POLLS_MAX * limits.CORRECT_POLL_MS <= limits.HOLE_GRACE_MS / 2
    assert limits.CORRECT_YIELD_POLLS_MAX * limits.CORRECT_POLL_MS > limits.HOLE_GRACE_MS * 2


def test_overtaken_for_ever_it_gives_up() -> None:
    """The caller tries again later; nothing is half done."""
    scene = Scene(log=Overtaken())

    with pytest.raises(Unavailable, match="overtaken"):
        corrector(scene).apply(FEED, 0, part(correct("a")))

    assert bodies(scene) == [[]] * limits.APPEND_ATTEMPTS_MAX


def test_a_row_that_went_back_for_a_moment_does_not_hide_the_log(scene: Scene) -> None:
    """A follower that repeats pages rewrites rows; the log after its checkpoint counts."""
    scene.post(op("a", "delete"))
    scene.state.write(FEED, [Row("video/a", 1, 0, NOW, line("a", "insert"))])

    assert corrector(scene).apply(FEED, 1, part(A)) == outcome(0, 1)


def test_an_object_that_comes_twice_is_corrected_once(scene: Scene) -> None:
    """The second time it has moved, by the first."""
    wanted = part(A, correct("a", Position(1, 0), "delete"))

    assert corrector(scene).apply(FEED, 1, wanted) == outcome(1, moved=1)


def test_a_large_part_becomes_many_pages(scene: Scene) -> None:
    """Each as large as a page may be, by operations and by bytes that do not deflate."""
    small = [correct(f"s{at}") for at in range(limits.REQUEST_OPERATIONS_MAX + 1)]
    noise = [
        correct(f"n{at}", data="".join(map(chr, range(at, 60_000)))[:15_000]) for at in range(9)
    ]

    assert corrector(scene).apply(FEED, 1, part(*small, *noise)) == outcome(1_010)

    sizes = [len(lines) for lines in bodies(scene)[1:]]
    assert sizes == [limits.REQUEST_OPERATIONS_MAX, 9, 1]


def test_sections_bound_what_is_held(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for a part of any size; each section reads the new pages of the log."""
    monkeypatch.setattr(limits, "CORRECT_SECTION", 2)
    wanted = part(*(correct(f"s{at}") for at in range(5)))

    assert corrector(scene).apply(FEED, 1, wanted) == outcome(5)

    assert [len(lines) for lines in bodies(scene)[1:]] == [2, 2, 1]


def test_on_a_quiet_feed_a_batch_costs_a_number_and_a_page(scene: Scene, log: Meanwhile) -> None:
    """The log is read when the section begins, and again only if another process wrote."""
    wanted = part(*(correct(f"s{at}") for at in range(2_500)))
    log.asked.clear()

    corrector(scene).apply(FEED, 1, wanted)

    begins = log.asked.index("take")
    assert log.asked[begins:] == ["take", "put"] * 3


def test_a_long_log_is_read_before_a_number_is_taken(
    scene: Scene, log: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes as many reads as needed: no other writer waits for them."""
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 1_200)
    for at in range(20):
        scene.post(op(f"x{at}"))
    log.asked.clear()

    assert corrector(scene).apply(FEED, 1, part(correct("c"))) == outcome(1)

    assert log.asked.count("read") > 3
    assert log.asked[-2:] == ["take", "put"]


def test_a_run_yields_and_is_continued(scene: Scene, log: Meanwhile) -> None:
    """It continues after the batches that were applied, and does not repeat them."""
    wanted = part(*(correct(f"s{at}") for at in range(1_500)))

    def slowly(page: Page) -> None:
        scene.now_ms += limits.CORRECT_RUN_MS

    log.before_put.append(slowly)
    first = corrector(scene).apply(FEED, 1, wanted)
    second = corrector(scene).apply(FEED, 1, wanted, first.behind)

    assert first == outcome(1_000, complete=False)
    assert second == outcome(500, behind=1_500)


def test_a_run_that_died_is_repeated(scene: Scene, log: Meanwhile) -> None:
    """The corrections that it applied are done; a filler replaces the number it took."""

    def die(page: Page) -> None:
        raise Unavailable("no answer")

    wanted = part(*(correct(f"s{at}") for at in range(1_500)))
    log.before_put.extend([die, lambda page: None])
    with pytest.raises(Unavailable):
        corrector(scene).apply(FEED, 1, wanted)

    assert corrector(scene).apply(FEED, 1, wanted) == outcome(500, done=1_000)
    assert [len(lines) for lines in bodies(scene)[1:]] == [1_000, 0, 0, 500]


def test_a_plan_from_before_the_log_is_too_old(scene: Scene) -> None:
    """Deletions since then may be forgotten: a correction could bring an object back."""
    scene.post_each(*"cde")
    scene.project()
    trimmed(scene, 3)

    with pytest.raises(PlanTooOld, match="page 1"):
        corrector(scene).apply(FEED, 1, part(correct("z")))
    assert corrector(scene).apply(FEED, 2, part(correct("z"))) == outcome(1)


def test_a_plan_is_too_old_before_tombstones_are_forgotten(scene: Scene) -> None:
    """This holds even if the log is kept longer for its number of pages."""
    scene.post(op("z", "delete"))
    scene.now_ms += TOMBSTONE_MS // 2
    assert corrector(scene).apply(FEED, 1, part(correct("z"))) == outcome(0, moved=1)
    scene.now_ms += 1

    with pytest.raises(PlanTooOld):
        corrector(scene).apply(FEED, 1, part(correct("z")))


def test_a_feed_that_does_not_exist_is_not_begun(scene: Scene) -> None:
    """A typing error in the feed's name would create a feed that no consumer reads."""
    with pytest.raises(UnknownFeed):
        corrector(scene).apply("mian", 0, part(correct("a")))


def test_a_bad_line_stops_a_part(scene: Scene) -> None:
    """The error names the line; the next run finds the earlier corrections done."""
    with pytest.raises(InvalidOperation, match="line 2"):
        corrector(scene).apply(FEED, 1, [*part(correct("c")), b"{"])


def test_nothing_asked_is_nothing_done(scene: Scene, log: Meanwhile) -> None:
    """An empty part is complete."""
    assert corrector(scene).apply(FEED, 1, []) == outcome(0)
    assert scene.log.head(FEED) == 1
