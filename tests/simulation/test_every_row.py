"""A consumer interrupted after every single event, with changes while it is away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.simulation.broken_catchup import (
    FloorOfSecond,
    ForgottenTombstones,
    LateCheckpoint,
    LateResumption,
    NextBucket,
    StraightToTheLog,
)
from tests.simulation.feed import Feed, Reading
from tests.simulation.model import DELETED, PAGE_END, Broken, Place, Wanted
from tests.simulation.parts import bounds
from tests.unit.core.scene import NOW
from tidings.core.catchup.catchup import CatchUp

PAGE = 10
SECOND_MS = 1_000
START = f"{PAGE_END:024x}"  # before the first page
NEW = 10_000  # the first number of the objects that come later
TYPES = Wanted(types=frozenset({"video"}))
PARENTS = Wanted(parents=frozenset({"channel/1"}))


@pytest.fixture(autouse=True)
def small_steps() -> Iterator[None]:
    """Several steps a bucket, several buckets a copy, and changes between any two steps."""
    with bounds(small=True, few_buckets=True):
        yield


def filled(objects: int, catch_up: type[CatchUp]) -> Feed:
    """Inserts, then some changes and deletions; a second passes with each page."""
    feed = Feed(catch_up)
    for first in range(0, objects, PAGE):
        feed.post("insert", *range(first, first + PAGE))
        feed.scene.now_ms += SECOND_MS
    feed.post("update", *range(0, objects, 7))
    feed.post("delete", *range(3, objects, 11))
    feed.project()
    return feed


@dataclass
class Changes:
    """What happens to the objects of *feed*, in a fixed order that hits each of them."""

    feed: Feed
    objects: int
    at: int = 0

    def happen(self) -> None:
        """Every third one changes, is deleted or is new; the state follows at every second."""
        self.at += 1
        number = self.at * 17 % self.objects
        match self.at % 9:
            case 0:
                self.feed.post("update", number)
            case 3:
                self.feed.post("delete", number)
            case 6:
                self.feed.post("insert", NEW + self.at)
        if self.at % 6 == 0:
            self.feed.project()
        self.feed.scene.now_ms += 100

    def while_away(self) -> None:
        """With no reader: many are deleted and change, some return; the state lags at the end."""
        self.feed.post("delete", *range(0, self.objects, 5))
        self.feed.post("update", *range(1, self.objects, 5), NEW + 1_000)
        self.feed.post("insert", *range(0, self.objects, 10), NEW + 1_001)
        self.feed.project()
        self.feed.post("delete", 2, NEW + 1_001)


Begin = Callable[[Feed, Wanted], Reading]


def from_zero(feed: Feed, wanted: Wanted) -> Reading:
    return Reading(feed, "0", wanted)


def from_one(feed: Feed, wanted: Wanted) -> Reading:
    return Reading(feed, "1", wanted).knows(all=True)


def from_a_time(feed: Feed, wanted: Wanted) -> Reading:
    since_ms = NOW + 2 * SECOND_MS
    return Reading(feed, str(since_ms), wanted).knows(since_ms=since_ms)


def from_a_foreign_id(feed: Feed, wanted: Wanted) -> Reading:
    since_ms = NOW + SECOND_MS
    cursor = f"{since_ms // 1000:08x}f095528dd03c863c"
    return Reading(feed, cursor, wanted).knows(since_ms=since_ms)


def from_a_trimmed_page(feed: Feed, wanted: Wanted) -> Reading:
    reading = Reading(feed, START, wanted).knows(place=(0, PAGE_END))
    for _ in reading.events():
        if Place.of(reading.cursor).page > 2:
            break
    feed.trim()
    return reading


BEGINNINGS = (from_zero, from_one, from_a_time, from_a_foreign_id, from_a_trimmed_page)


def cut_everywhere(
    begin: Begin,
    wanted: Wanted = Wanted(),  # noqa: B008
    objects: int = 60,
    trims: str = "",
    catch_up: type[CatchUp] = CatchUp,
) -> Counter[str]:
    """One reads to the end; for each event another one is cut after it and resumes at the end.

    *trims*: the log is trimmed `reading`, during the read, or `away`. Returns what happened.
    """
    feed = filled(objects, catch_up)
    reading, changes = begin(feed, wanted), Changes(feed, objects)
    cut = [reading.copy()]
    for told in reading.events():
        cut.append(reading.copy())
        changes.happen()
        if trims == "reading" and told in (20, 60):
            feed.trim()
    changes.while_away()
    if trims == "away":
        feed.trim()
    saw = Counter[str]()
    for each in cut:
        saw += resumed(each)
    return saw


def resumed(reading: Reading) -> Counter[str]:
    """Resume it, check it, and say what it met."""
    saw, before = Counter[str](), set(reading.objects)
    if reading.in_copy:
        saw["cut in a copy"] += 1
        trimmed = Place.of(reading.cursor).page + 1 < reading.feed.floor
        saw["trimmed under the copy"] += trimmed
    reading.to_the_end().check()
    deleted = (key for key, held in reading.objects.items() if held is DELETED)
    saw["known ones were deleted"] += bool(before.intersection(deleted))
    return saw


def test_O47_a_copy_of_two_hundred_objects_may_be_cut_behind_every_event() -> None:
    """Whatever went and changed, the copy is complete afterwards, with and without care."""
    saw = cut_everywhere(from_zero, objects=200)

    assert saw["cut in a copy"] >= 150
    assert saw["known ones were deleted"] >= 150


@pytest.mark.parametrize("trims", ["", "reading", "away"])
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_O41_every_beginning_may_be_cut_behind_every_event(begin: Begin, trims: str) -> None:
    """With `0`, `1`, a time, an ObjectId, a page that is gone; the log trimmed or not."""
    saw = cut_everywhere(begin, trims=trims)

    assert saw["cut in a copy"] >= 30
    assert saw["known ones were deleted"] >= 30
    assert bool(saw["trimmed under the copy"]) is (trims != "")


@pytest.mark.parametrize("wanted", [TYPES, PARENTS], ids=["types", "parents"])
@pytest.mark.parametrize("trims", ["", "away"])
@pytest.mark.parametrize("begin", [from_zero, from_a_foreign_id])
def test_O56_filtered_copies_too(begin: Begin, trims: str, wanted: Wanted) -> None:
    """Only matching events are sent, and the matching objects are complete."""
    saw = cut_everywhere(begin, wanted, trims=trims)

    assert saw["cut in a copy"] >= 10


BROKEN = {
    "the next bucket": (NextBucket, from_zero, ""),
    "no tombstones": (ForgottenTombstones, from_a_trimmed_page, ""),
    "the checkpoint after the rows": (LateCheckpoint, from_zero, ""),
    "the checkpoint of the resumption": (LateResumption, from_zero, ""),
    "up to a second": (FloorOfSecond, from_zero, ""),
    "a trimmed place": (StraightToTheLog, from_a_foreign_id, ""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_copy_is_noticed(name: str) -> None:
    """Each rule of the copy is needed for it."""
    catch_up, begin, trims = BROKEN[name]

    with pytest.raises(Broken):
        cut_everywhere(begin, trims=trims, catch_up=catch_up)
