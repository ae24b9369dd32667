"""Copies of feeds with an unusual shape: one timestamp, one bucket, nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from tests.simulation.feed import Feed, Reading
from tests.simulation.model import Wanted
from tests.unit.core.scene import NOW, RETENTION
from tidings.core import limits
from tidings.core.state.rows import bucket_of

MANY = 2_000
PAGE = 1_000
EVERY = 97  # a prime: cuts fall on every part of a bucket
LATER_MS = 2 * RETENTION.age_ms


def ids(reading: Reading) -> Iterator[str]:
    """Yield the ids of the received events."""
    for _ in reading.events():
        yield reading.cursor


def numbers_in(bucket: int) -> Iterator[int]:
    """Objects that the state keeps there."""
    kinds = ("video", "user")
    return (number for number in count() if bucket_of(f"{kinds[number % 2]}/o{number}") == bucket)


def in_pages(feed: Feed, numbers: list[int]) -> None:
    for first in range(0, len(numbers), PAGE):
        feed.post("insert", *numbers[first : first + PAGE])
    feed.project()


@pytest.mark.parametrize("begin", ["0", f"{NOW // 1000:08x}f095528dd03c863c"])
def test_O54_two_thousand_objects_of_one_millisecond(begin: str) -> None:
    """The copy ends, sends each of them once, and may be interrupted among them."""
    feed = Feed()
    in_pages(feed, list(range(MANY)))
    reading = Reading(feed, begin).knows(since_ms=NOW)
    cut = []
    for told in reading.events():
        if told % EVERY == 0:
            cut.append(reading.copy())
    reading.check()
    assert told == MANY + (2 if begin == "0" else 1)  # reset, live
    assert len({cursor for cursor in ids(Reading(feed, begin))}) >= limits.BUCKETS

    feed.post("delete", *range(0, MANY, 10))
    for each in cut:
        each.to_the_end().check()
    assert len(cut) > 15


def test_a_bucket_may_be_larger_than_any_step() -> None:
    """One connection pages through it; an interrupted client gets it again, but nothing else."""
    feed, bucket = Feed(), 7
    huge = list(islice(numbers_in(bucket), 3 * limits.COPY_STEP_ROWS))
    in_pages(feed, huge)
    in_pages(feed, list(islice(numbers_in(bucket + 1), 5)))
    whole = list(ids(Reading(feed, "0")))
    assert len(whole) == len(huge) + 5 + 2

    for at in (1, limits.COPY_STEP_ROWS, len(huge), len(huge) + 1):
        resumed = list(ids(Reading(feed, whole[at])))
        first = next(index for index, cursor in enumerate(whole) if cursor == whole[at])
        assert resumed == whole[first:]


@pytest.mark.parametrize("begin", ["0", "1", "-1", str(NOW), "9" * 13, "now", ""])
def test_O51_every_beginning_of_an_empty_feed(begin: str) -> None:
    """Later operations are received from the id of any received event on."""
    feed = Feed()
    told = list(ids(Reading(feed, begin)))
    assert len(told) == (0 if begin in ("now", "") else 2 if begin == "0" else 1)

    feed.post("insert", 1, 2)
    for cursor in told:
        reading = Reading(feed, cursor).knows(all=True).to_the_end()
        reading.check()
        assert len(reading.objects) == 2


def test_O50_where_no_row_matches_live_has_a_place() -> None:
    """A client that resumes from it receives no second copy."""
    feed, wanted = Feed(), Wanted(types=frozenset({"show"}))
    in_pages(feed, list(range(20)))
    told = list(ids(Reading(feed, "0", wanted)))

    assert len(told) == 2
    assert list(ids(Reading(feed, told[-1], wanted))) == []


def test_now_behind_a_log_that_is_all_trimmed() -> None:
    """No old event is sent, and its cursor leads to all later ones."""
    feed = Feed()
    in_pages(feed, list(range(20)))
    feed.scene.now_ms += LATER_MS
    feed.trim()

    assert list(ids(Reading(feed, "now"))) == []
    live = list(ids(Reading(feed, "0")))[-1]
    feed.post("update", 3)
    assert len(list(ids(Reading(feed, live)))) == 2  # the row and live


def test_the_same_copy_may_be_resumed_until_its_log_is_gone() -> None:
    """Then it starts again with a reset, without the objects deleted in the meantime."""
    feed = Feed()
    in_pages(feed, list(range(200)))
    reading = Reading(feed, "0")
    list(islice(reading.events(), 50))
    assert reading.in_copy
    feed.post("delete", *range(0, 200, 3))
    feed.project()
    resumed = reading.copy().to_the_end()
    resumed.check()

    feed.trim()
    first = next(ids(again := reading.copy()))
    again.to_the_end().check()
    assert first == "1"
