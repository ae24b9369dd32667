"""The removal of deleted feeds: resumed after each step, repeated after a pause, and reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.fakes import MemoryFeeds
from tests.unit.core.scene import FEEDS, Host, Scene
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.feeds.directory import Directory
from tidings.core.feeds.records import (
    DELETED,
    DELETING,
    LIVE,
    TABLES_DROPPED,
    FeedRecord,
    Removal,
    Removed,
)
from tidings.core.feeds.remover import FeedDataParts, Remover, note_dropped_tables
from tidings.core.model.feeds import key_of

NAME, LONG = "orders", 10**15


@dataclass
class Data:
    """Implements `FeedData`: items by the keys of feeds. A step removes one item."""

    items: dict[str, list[str]] = field(default_factory=dict)
    now_ms: int = 0
    calls: list[tuple[str, str]] = field(default_factory=list)
    fails_at: int = 0

    def put(self, key: str, count: int = 3) -> None:
        self.items.setdefault(key, []).extend(["item"] * count)

    def remove(self, key: str, place: str, until_ms: int) -> Removed:
        self.calls.append((key, place))
        if len(self.calls) == self.fails_at:
            raise Unavailable("not now")
        counts, left = 0, self.items.get(key, [])
        while left:
            left.pop()
            counts, self.now_ms = counts + 1, self.now_ms + 1
            if self.now_ms >= until_ms:
                return Removed(str(len(left)), {"items": counts})
        self.items.pop(key, None)
        return Removed(None, {"items": counts} if counts else {})


@dataclass
class Case:
    scene: Scene
    data: Data = field(default_factory=Data)
    overwrite: Callable[[], bool] | None = None

    def host(self) -> Host:
        return Host(self.scene)

    def remover(self) -> Remover:
        """Return the job of a new process."""
        return Remover(
            directory=Directory(self.scene.feeds, FEEDS, self.scene.clock),
            data=self.data,
            runtime=replace(self.scene.runtime, steady=lambda: self.data.now_ms),
            overwrite=self.overwrite,
        )

    def delete(self, name: str = NAME, *, tables: bool = False) -> FeedRecord:
        self.host().feed_service.create(name)
        key = self.host().directory.key(name)
        self.data.put(key)
        return self.host().feed_service.delete(name, confirm=name, tables=tables)

    def record(self, name: str = NAME) -> FeedRecord:
        record = self.scene.feeds.record(name)
        assert record is not None
        return record

    def settle(self) -> None:
        self.scene.now_ms += limits.REMOVE_SETTLE_MS


@pytest.fixture
def case() -> Case:
    return Case(Scene())


def test_a_feed_is_removed_in_two_passes(case: Case) -> None:
    """The second one, after a pause, removes what slow processes have written."""
    case.delete()
    remover = case.remover()
    assert not remover.run(LONG)
    assert case.data.items == {}
    assert remover.waits() and not remover.has_work() and case.record().state == DELETING
    case.data.put(NAME, 2)
    case.scene.now_ms += limits.REMOVE_SETTLE_MS - 1
    assert not remover.run(LONG) and case.data.items
    case.scene.now_ms += 1
    assert remover.has_work() and not remover.run(LONG)
    record = case.record()
    assert (record.state, case.data.items, remover.waits()) == (DELETED, {}, False)
    (removal,) = record.removals
    assert dict(removal.counts) == {"items": 5}
    assert removal.done_ms == case.scene.now_ms
    assert case.scene.feeds.unfinished() == []


def test_the_pause_begins_with_the_deletion(case: Case) -> None:
    """A first pass that took longer needs no pause; a clock that was set back does not stop it."""
    case.delete()
    case.settle()
    assert not case.remover().run(LONG)
    assert case.record().state == DELETED
    case.delete("later")
    case.remover().run(LONG)
    case.scene.now_ms -= 3_600_000
    case.remover().run(LONG)
    assert case.record("later").state == DELETED


def test_a_run_ends_in_time_and_another_one_continues(case: Case) -> None:
    """Each run does at least one step, and a new process begins at the stored position."""
    case.delete()
    runs = 0
    while case.remover().run(0):
        runs += 1
        assert runs <= 4
    assert runs == 4
    assert [place for _, place in case.data.calls] == ["", "2", "1", "0"]


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("fails", ["data", "before", "after"])
def test_a_job_that_fails_is_continued(case: Case, at: int, fails: str) -> None:
    """At any call of a store, whether the write was done or not."""
    case.scene.feeds = store = Failing()
    case.delete()
    store.after = fails == "after"
    case.data.fails_at = at if fails == "data" else 0
    store.fails_at = 0 if fails == "data" else store.calls + at
    failures = 0
    for _ in range(40):
        try:
            case.remover().run(case.data.now_ms + 1)
        except Unavailable:
            failures += 1
        case.scene.now_ms += 1_000
    assert failures <= 1
    assert (case.record().state, case.data.items) == (DELETED, {})


class Failing(MemoryFeeds):
    calls = fails_at = 0
    after = False

    def save(self, record: FeedRecord) -> bool:
        self.calls += 1
        if self.calls != self.fails_at:
            return super().save(record)
        if self.after:
            super().save(record)
        raise Unavailable("not now")


def test_several_feeds_of_a_name_are_removed(case: Case) -> None:
    """Each with its own position and report. The one that exists is not touched."""
    for _ in range(3):
        case.delete()
    case.host().feed_service.create(NAME)
    live = case.host().directory.key(NAME)
    case.data.put(live)
    case.data.put("other")
    case.settle()
    case.remover().run(LONG)
    assert {*case.data.items} == {live, "other"}
    record = case.record()
    assert record.state == LIVE and record.unfinished == ()
    assert [(each.number, dict(each.counts)) for each in record.removals] == [
        (number, {"items": 3}) for number in (1, 2, 3)
    ]


def test_a_record_that_changes_is_read_again(case: Case) -> None:
    """Another request creates the feed during the removal; neither change is lost."""
    case.delete()

    class Racing(Data):
        def remove(self, key: str, place: str, until_ms: int) -> Removed:
            if not self.calls:
                case.host().feed_service.create(NAME)
            return super().remove(key, place, until_ms)

    case.data = Racing(case.data.items)
    assert case.remover().run(LONG)
    case.settle()
    case.remover().run(LONG)
    record = case.record()
    assert (record.number, record.state, record.unfinished) == (2, LIVE, ())


def test_it_ends_when_the_free_space_is_overwritten(case: Case) -> None:
    """Not while a reader of the file prevents that, such as a backup. It then writes no record."""
    case.delete()
    case.overwrite = lambda: False
    case.settle()
    remover = case.remover()
    assert not remover.run(LONG)
    version = case.record().version
    assert not remover.run(LONG) and remover.waits()
    assert (case.record().version, case.record().state) == (version, DELETING)
    case.overwrite = lambda: True
    case.remover().run(LONG)
    assert case.record().state == DELETED


def test_tables_are_pending_until_the_lake_drops_them(case: Case) -> None:
    case.delete(tables=True)
    case.settle()
    remover = case.remover()
    remover.run(LONG)
    assert case.record().state == DELETING and not remover.waits() and not remover.has_work()
    for _ in range(2):
        note_dropped_tables(case.scene.feeds, NAME, 1)
    note_dropped_tables(case.scene.feeds, NAME, 7)
    note_dropped_tables(case.scene.feeds, "never", 1)
    assert case.record().state == DELETED
    assert case.record().removals[0].tables == TABLES_DROPPED


def test_parts_are_removed_one_after_the_other() -> None:
    """The position names the part; each part is removed to its end."""
    parts = [Data({"a": ["x"] * 3}), Data(), Data({"a": ["x"]})]
    data, place, places = FeedDataParts(parts), "", []
    while True:
        done = data.remove("a", place, 0)
        if done.resume_at is None:
            break
        place = done.resume_at
        places.append(place)
    assert places == ["0:2", "0:1", "0:0", "1:", "2:", "2:0"]
    assert [each.items for each in parts] == [{}, {}, {}]
    assert data.remove("a", "9:", 0) == Removed(None, {})


def test_finished_removals_are_kept_for_a_while() -> None:
    """The latest ones, and all that are not finished."""
    record = FeedRecord(NAME, number=9)
    for number in range(1, 9):
        done_ms = 0 if number in (2, 8) else 1
        record = record.with_removal(Removal(number, 1, done_ms=done_ms))
    assert [each.number for each in record.removals] == [2, 5, 6, 7, 8]
    again = record.with_removal(replace(record.removals[0], done_ms=1))
    assert [each.number for each in again.removals] == [5, 6, 7, 8]
    assert again.key == key_of(NAME, 9)
