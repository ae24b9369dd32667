"""Restoring: tables of different moments become one feed, in which no old cursor skips."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace

import pytest

from tests.fakes import MemoryArchive, MemoryConsumers, MemoryLog
from tests.unit.core.following import caught_up, held_after, names
from tests.unit.core.scene import FEED, Host, Scene, line, op
from tidings.core import limits
from tidings.core.archive.generations import cut, lost_parts
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.writer import Archiver
from tidings.core.consumers import position as positions
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.consumers.position import Span
from tidings.core.counters import RESTORED
from tidings.core.effects import Sleep
from tidings.core.errors import Unavailable
from tidings.core.feeds.service import jump_end
from tidings.core.maintenance.restore import Restorer, Rewinder, rewind
from tidings.core.model.cursors import PAGE_END, Place, Replication
from tidings.core.model.feeds import HOST
from tidings.core.model.pages import Page
from tidings.core.settings.profiles import possible, remember_lost


@dataclass
class Kept:
    """A feed, a backup of its tables, and the restorer."""

    scene: Scene = field(default_factory=Scene)
    consumers: MemoryConsumers = field(default_factory=MemoryConsumers)
    sleep: Sleep | None = None

    def restorer(self, archive: MemoryArchive | None = None) -> Restorer:
        scene = self.scene
        runtime = replace(scene.runtime, sleep=self.sleep or scene.wait)
        return Restorer(
            reader=scene.reader,
            numbers=scene.log,
            profiles=scene.profiles,
            archive=archive,
            rewinder=Rewinder(scene.followers, self.consumers, runtime),
            runtime=runtime,
        )

    def post(self, *names_: str) -> list[Page]:
        pages = []
        for name in names_:
            self.scene.now_ms += 1000
            pages.append(self.scene.post(op(name, "insert")))
        return pages

    def saved(self) -> MemoryLog:
        """Return a copy of the table as it is now."""
        log = MemoryLog()
        log._feeds = copy.deepcopy(self.scene.log._feeds)
        return log

    def back(self, log: MemoryLog) -> None:
        """Restore *log* from a backup, with a new state and new followers."""
        self.scene = Scene(self.scene.now_ms, log, profiles=self.scene.profiles)

    def restore(self, heard: int | None = None) -> None:
        restorer = self.restorer()
        restorer.restore(FEED, restorer.plan(FEED, heard))


@pytest.fixture
def place() -> Kept:
    return Kept()


def test_cursors_from_before_between_and_after_end_equal_to_the_state(place: Kept) -> None:
    """A consumer that received lost operations drops them; one that did not misses nothing."""
    before = place.post("a", "b")
    saved = place.saved()
    between = place.post("c", "d")
    place.back(saved)
    place.restore(between[-1].number)
    after = place.post("e", "f")
    place.scene.project()
    assert after[0].number > between[-1].number
    wanted = {"a", "b", "e", "f"}
    assert held_after(place.scene, before[0].end.encode(), {"a"}) == wanted
    assert held_after(place.scene, between[0].end.encode(), {"a", "b", "c"}) == wanted
    assert held_after(place.scene, between[1].end.encode(), {"a", "b", "c", "d"}) == wanted
    assert held_after(place.scene, after[0].end.encode(), {"a", "b", "e"}) == wanted
    assert names(caught_up(place.scene, between[0].end.encode()))[0] == "reset"
    assert names(caught_up(place.scene, before[1].end.encode())) == ["insert e", "insert f"]


def test_a_copy_that_began_before_begins_anew(place: Kept) -> None:
    """Its first rows may be from lost pages, wherever its log began."""
    first, *_ = place.post("a", "b")
    saved = place.saved()
    lost = place.post("c")[0].number
    place.back(saved)
    place.restore(lost)
    place.scene.project()
    cursor = Replication(0, first.number, 7, tombstones=False).encode()
    assert names(caught_up(place.scene, cursor))[0] == "reset"
    fresh = Replication(0, place.scene.log.head(FEED), 7, tombstones=False).encode()
    assert "reset" not in names(caught_up(place.scene, fresh))


def test_numbers_go_on_above_whatever_was_known(place: Kept) -> None:
    """The last known number may come from the counter, followers, consumers or the operator."""
    place.post("a", "b")
    restorer = place.restorer()
    assert restorer.plan(FEED, 2).last == 2
    assert restorer.plan(FEED, 9).last == 9
    place.scene.set_checkpoint("push", 12)
    assert restorer.plan(FEED, 2).last == 12
    standing = Consumer(FEED, "c", position=Place(15, PAGE_END, 1))
    place.consumers.write(FEED, "c", 0, Change(standing))
    assert restorer.plan(FEED, 2).last == 15
    place.scene.log.raise_head(FEED, 17)
    assert restorer.plan(FEED, 2).last == 17


def test_what_nobody_knows_is_bounded_by_the_time(place: Kept) -> None:
    """No more pages can have been written in that time; the time of the backup may be later."""
    place.post("a")
    place.scene.now_ms += 3000
    slack_s, per_s = limits.CLOCK_SKEW_MS_MAX // 1000, limits.NUMBERS_PER_S_MAX
    restorer = place.restorer()
    assert restorer.plan(FEED, None).last == 1 + (3 + slack_s) * per_s
    copied_ms = place.scene.now_ms - 1000
    assert restorer.plan(FEED, None, copied_ms=copied_ms).last == 1 + (1 + slack_s) * per_s


def test_a_wrong_clock_does_not_use_the_numbers_up() -> None:
    """Each jump takes a part of the remaining numbers, so even many jumps leave enough."""
    known = 0
    for _ in range(200):
        known += possible(known, 10**15) + 1
    assert limits.PAGE_NUMBER_MAX - known > 10**9
    assert possible(limits.PAGE_NUMBER_MAX, 10**15) == 0


def test_a_reader_passes_the_jump(place: Kept) -> None:
    """Skipped numbers are not a hole for a reader at any of them."""
    kept = place.post("a")[0].number
    place.restore(10**9)
    after = place.post("b")[0].number
    reader = place.scene.reader
    assert after == 10**9 + 2
    assert [page.number for page in reader.read(FEED, 0).pages] == [kept, after - 1, after]
    assert [page.number for page in reader.read(FEED, 10**6).pages] == [after - 1, after]
    assert reader.frontier(FEED, 0).page == after
    assert [page.number for page in reader.read_until(FEED, 0, kept).pages] == [kept]


def test_a_request_that_is_repeated_gets_a_number_that_is_read(place: Kept) -> None:
    """The claims may be newer than the restored log, so that a claim names a lost page."""
    place.post("a")
    claims, saved = place.scene.claims, place.saved()
    lost = place.scene.appender.append_once(FEED, [line("b")], "key", "print")
    place.back(saved)
    place.restore(9)
    appender = replace(place.scene.appender, claims=claims)
    again = appender.append_once(FEED, [line("b")], "key", "print")
    assert (lost.number, again.number) == (2, 11)


def test_pages_behind_a_hole_stay(place: Kept) -> None:
    """These pages were acknowledged. Readers that were at them or in the hole start over."""
    place.post("a")
    lost = place.scene.log.take(FEED)
    stray = place.post("c")[0]
    plan = place.restorer().plan(FEED, 5)
    assert (plan.lost, set(plan.strays)) == ((2, 5), {3})
    assert list(plan.jumps) == [(2, 2), (4, 6)]
    place.restore(5)
    assert [page.number for page in place.scene.reader.read(FEED, 0).pages] == [1, 2, 3, 6]
    place.scene.project()
    assert names(caught_up(place.scene, stray.end.encode()))[0] == "reset"
    assert lost == 2


def test_followers_and_consumers_are_taken_back(place: Kept) -> None:
    """None remains ahead of the restored log, and work that had begun is repeated."""
    kept = place.post("a", "b")[-1]
    place.scene.set_checkpoint("state", 7)
    place.scene.set_checkpoint("push", 1)
    ahead = Consumer(FEED, "ahead", position=Place(7, PAGE_END, 9), acked=(Span(8, 0, 1),))
    place.consumers.write(FEED, "ahead", 0, Change(ahead))
    restorer = place.restorer()
    done = restorer.restore(FEED, restorer.plan(FEED, 8))
    assert (done.followers, done.consumers, done.parts) == (("state",), ("ahead",), 0)
    assert place.scene.followers.checkpoints(FEED) == {"state": 2, "push": 1}
    consumer = place.consumers.consumer(FEED, "ahead")
    assert consumer is not None
    assert (consumer.position, consumer.acked) == (kept.end, ())


KEPT = Place(4, PAGE_END, 77)


@pytest.mark.parametrize(
    ("standing", "position"),
    [
        (Consumer(FEED, "c", position=Place(4, 2, 77)), None),
        (Consumer(FEED, "c"), None),
        (Consumer(FEED, "c", position=positions.COPY), None),
        (Consumer(FEED, "c", position=Replication(0, 3, 5, False)), positions.COPY),
        (Consumer(FEED, "c", position=Place(5, 0, 80)), KEPT),
        (Consumer(FEED, "c", position=Place(3, 0, 7), acked=(Span(6, 0, 3),)), Place(3, 0, 7)),
        (Consumer(FEED, "c", position=Place(3, 0, 7), sent=Place(6, 0, 9)), Place(3, 0, 7)),
    ],
)
def test_a_consumer_is_as_if_it_had_not_heard(
    standing: Consumer, position: positions.Position | None
) -> None:
    """Its worker has to take the lease again; a consumer that got no lost page is not changed."""
    left = rewind(standing, KEPT)
    if position is None:
        assert left is standing
    else:
        assert (left.position, left.acked, left.sent) == (position, (), None)
        assert left.fence == standing.fence + 1


def test_a_log_that_is_gone_has_its_consumers_begin_anew() -> None:
    """If no page remains, no position is valid."""
    standing = Consumer(FEED, "c", position=Place(5, 0, 80))
    assert rewind(standing, Place(0, PAGE_END, 0)).position is None


def test_a_killed_run_is_ended_by_the_next_one(place: Kept) -> None:
    """The plan is the same wherever the run was killed."""
    place.post("a", "b")
    plan = place.restorer().plan(FEED, 6)
    remember_lost(place.scene.profiles, FEED, plan.lost)
    assert place.restorer().plan(FEED, 6) == plan
    place.scene.log.raise_head(FEED, plan.end)
    assert place.restorer().plan(FEED, None) == plan
    place.restore()
    assert place.scene.profiles.profile(FEED).lost == ((3, 6),)
    assert place.scene.reader.frontier(FEED, 0).page == 7


def test_a_second_restore_is_remembered_beside_the_first(place: Kept) -> None:
    """A consumer that was away during both learns of both."""
    place.post("a")
    place.restore(3)
    place.post("b")
    place.restore(9)
    assert place.scene.profiles.profile(FEED).lost == ((2, 3), (6, 9))


def test_a_feed_that_is_created_anew_uses_no_lost_number(place: Kept) -> None:
    """The host does not know the feeds any more that were created since the backup."""
    place.post("a")
    place.restore(40)
    place.restore(9)
    ((_, last),) = place.scene.profiles.profile(HOST).lost
    assert last >= 40
    Host(place.scene).feed_service.create("orders")
    assert place.scene.profiles.profile("orders").lost == ((1, jump_end(last) - 1),)
    assert place.scene.log.take("orders") == jump_end(last) + 1


def test_a_follower_at_work_stops_it(place: Kept) -> None:
    """A process still works on these tables, so none of its leases may be taken."""
    place.post("a")
    lease = place.scene.followers.take(FEED, "state", owner="x", now_ms=place.scene.now_ms)
    place.scene.followers.save(lease, 9, now_ms=place.scene.now_ms)
    slept: list[int] = []

    def renewed(ms: int) -> None:
        slept.append(ms)
        place.scene.followers.save(lease, 9, now_ms=place.scene.now_ms)

    place.sleep = renewed
    with pytest.raises(Unavailable, match="another process runs the follower state of main"):
        place.restore(9)
    assert slept == [limits.LEASE_MS]


def test_a_lease_that_was_stored_with_the_table_is_nobodys(place: Kept) -> None:
    """Its holder ended with the earlier tables: the lease is observed for the length of a lease."""
    place.post("a")
    lease = place.scene.followers.take(FEED, "state", owner="x", now_ms=place.scene.now_ms)
    place.scene.followers.save(lease, 9, now_ms=place.scene.now_ms + 10**9)
    place.restore(9)
    assert place.scene.followers.checkpoints(FEED) == {"state": 1}
    assert place.scene.waits == [limits.LEASE_MS]


def test_the_archive_is_cut_where_the_log_is(place: Kept) -> None:
    """A part that reaches over the cut keeps what is before it; the rest is removed."""
    archive = place.scene.archive
    for names_ in (("a", "b"), ("c", "d"), ("e",)):
        place.post(*names_)
        place.scene.archived()
    assert cut(archive, FEED, 3) == 2
    assert [(span.first, span.last) for span in archive.list(FEED, 0, 9)] == [(1, 2), (3, 3)]
    assert cut(archive, FEED, 3) == 0


def _archived(archive: MemoryArchive) -> list[tuple[int, str]]:
    """Return the pages that a reader of the archive finds, with the names of their objects."""
    reader, found = ArchiveReader(archive, lambda *_: None), list[tuple[int, str]]()
    while pages := reader.read(FEED, found[-1][0] if found else 0, 10**6):
        found += [(each.number, json.loads(each.text)["id"] if each.text else "") for each in pages]
    return found


@pytest.mark.parametrize("times", [1, 2])
def test_followers_of_the_tables_before_the_restore_still_run(place: Kept, times: int) -> None:
    """The pages that they archive afterwards stay hidden, and are reported until removed."""
    place.post("a", "b", "c")
    place.scene.archived()
    saved, old = place.saved(), place.scene
    place.post("lost")
    old.archived()
    stalled = Archiver(old.archive, old.count)
    stalled.begin(old.followers.take(FEED, "archive", owner="stalled", now_ms=old.now_ms))
    archive = old.archive
    place.scene = new = Scene(old.now_ms, saved, profiles=old.profiles, archive=archive)
    for _ in range(times):  # the second time as after a kill
        restorer = place.restorer(archive)
        restorer.restore(FEED, restorer.plan(FEED, 4))
    late = [old.post(op(f"late-{number}")) for number in range(3)]
    stalled.handle(FEED, late)
    place.post("new-1", "new-2")
    assert new.archived()
    jumps, end = [(5, ""), (6, "")][:times], 4 + times
    posted = [(end + 1, "new-1"), (end + 2, "new-2")]
    assert _archived(archive) == [(1, "a"), (2, "b"), (3, "c"), *jumps, *posted]
    assert [(span.first, span.last) for span in lost_parts(archive, FEED)] == [(5, 7)]
    restorer = place.restorer(archive)
    restorer.restore(FEED, restorer.plan(FEED, None))
    assert lost_parts(archive, FEED) == []
    place.post("newer")
    new.archived()
    assert [name for _, name in _archived(archive) if name] == [
        "a",
        "b",
        "c",
        "new-1",
        "new-2",
        "newer",
    ]


def test_a_log_that_restored_tables_continue_assigns_no_numbers(place: Kept) -> None:
    """Producers repeat their requests. The log assigns numbers again when it is restored itself."""
    place.post("a")
    place.scene.log.yield_to(FEED, RESTORED)
    with pytest.raises(Unavailable, match="restored tables continue"):
        place.post("b")
    place.restore(9)
    assert place.post("b")[0].number == 11
