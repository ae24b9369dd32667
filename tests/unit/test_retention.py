"""Retention: how far the floor may rise, and what is kept from expiring."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidings.core.feeds import Retention
from tidings.core.pages import Page

from tests.unit.scene import FEED, NOW, PAGE_MS, RETENTION, Scene, line, op

HOUR = 3_600_000
QUIET = NOW - NOW % HOUR + HOUR // 2  # a sweep in the middle of an hour extends nothing


def followed(scene: Scene, *followers: str) -> None:
    """These followers have handled everything."""
    for name in followers:
        lease = scene.followers.take(FEED, name, owner="me", now_ms=scene.now_ms)
        assert lease is not None
        lease = scene.followers.save(lease, scene.log.head(FEED), now_ms=scene.now_ms)
        assert scene.followers.release(lease)


def aged(pages: int, *, records_min: int = 0) -> Scene:
    """So many pages, one an hour, all of them handled."""
    retention = Retention(age_ms=RETENTION.age_ms, records_min=records_min)
    scene = Scene(now_ms=QUIET, retention=retention)
    for _ in range(pages):
        scene.post(op())
        scene.now_ms += HOUR
    followed(scene, "state", "push")
    return scene


def test_pages_are_given_up_by_age() -> None:
    """With two hours of retention and a page each hour, only the last is younger."""
    scene = aged(10)

    assert scene.trimmer.run(FEED) == 10
    assert scene.log.floor(FEED) == 10
    assert scene.counted["FloorRaised"] == 9
    assert scene.trimmer.run(FEED) == 10
    assert scene.counted["FloorRaised"] == 9


@pytest.mark.parametrize(("records_min", "floor"), [(0, 10), (2, 9), (5, 6), (10, 1), (99, 1)])
def test_a_minimum_of_pages_stays_however_old(records_min: int, floor: int) -> None:
    """And all of them where there are fewer."""
    assert aged(10, records_min=records_min).trimmer.run(FEED) == floor


@pytest.mark.parametrize("handled", [[], ["state"], ["push"]])
def test_what_a_follower_has_not_handled_stays(handled: list[str]) -> None:
    """Also where it never ran: nothing is known of it, so it stands at the start."""
    scene = Scene(now_ms=QUIET)
    for _ in range(5):
        scene.post(op())
    followed(scene, *handled)
    scene.now_ms += 10 * HOUR

    assert scene.trimmer.run(FEED) == 1
    followed(scene, "state", "push")
    assert scene.trimmer.run(FEED) == 6


def test_other_followers_hold_the_floor_too() -> None:
    """Any checkpoint that is kept for the feed counts."""
    scene = aged(5)
    lease = scene.followers.take(FEED, "relay", owner="me", now_ms=scene.now_ms)
    assert lease is not None
    scene.followers.save(lease, 3, now_ms=scene.now_ms)

    assert scene.trimmer.run(FEED) == 4


def test_nothing_is_given_up_that_is_not_archived() -> None:
    """While there is an archive; where it never ran, it has nothing."""
    scene = aged(5)
    trimmer = replace(scene.trimmer, archives=True)

    assert trimmer.run(FEED) == 1
    assert scene.archived() == 5
    assert trimmer.run(FEED) == 5


def test_an_archive_that_was_turned_off_holds_nothing() -> None:
    """Its checkpoint is kept, and is history."""
    scene = aged(3)
    scene.archived()
    for _ in range(2):
        scene.post(op())
        scene.now_ms += HOUR
    followed(scene, "state", "push")

    assert replace(scene.trimmer, archives=True).run(FEED) == 4
    assert scene.trimmer.run(FEED) == 5


def test_an_empty_feed() -> None:
    """Nothing to give up."""
    assert Scene(now_ms=QUIET).trimmer.run(FEED) == 1


@given(
    st.lists(st.integers(0, HOUR), max_size=30).map(sorted),
    st.sets(st.integers(1, 30)),
    st.integers(0, 5),
)
def test_the_floor_is_found_by_halving(
    pauses: list[int], fillers: set[int], records_min: int
) -> None:
    """The same one as a walk from the first page finds; fillers are pages like others."""
    retention = Retention(age_ms=4 * HOUR, records_min=records_min)
    scene = Scene(now_ms=QUIET - 8 * HOUR, retention=retention)
    committed = []
    for number, pause in enumerate(pauses, 1):
        scene.now_ms += pause
        body = "" if number in fillers else line()
        scene.log.put(FEED, Page(scene.log.take(FEED), body, "id", scene.now_ms))
        committed.append(scene.now_ms)
    followed(scene, "state", "push")
    scene.now_ms = max(QUIET, scene.now_ms)
    scene.now_ms += HOUR // 2 - scene.now_ms % HOUR

    walked = 0
    while walked < len(committed) - records_min and scene.now_ms - committed[walked] >= 4 * HOUR:
        walked += 1
    assert scene.trimmer.run(FEED) == walked + 1


def expiring(scene: Scene) -> list[int]:
    """The pages DynamoDB may delete within half a day."""
    return scene.log.expiring(FEED, 1, 99, scene.now_ms + 12 * HOUR)


def test_each_hour_what_must_stay_is_extended() -> None:
    """A page that may not be given up is kept from expiring, a day at a time; others are not."""
    scene = aged(3, records_min=2)
    scene.now_ms = QUIET + PAGE_MS - HOUR // 2
    assert scene.now_ms % HOUR == 0
    assert expiring(scene) == [1, 2, 3]

    assert scene.trimmer.run(FEED) == 2
    assert expiring(scene) == [1]


def test_between_the_hours_nothing_is_extended() -> None:
    """Looking costs a read of the old pages."""
    scene = aged(3, records_min=2)
    scene.now_ms = QUIET + PAGE_MS - HOUR
    assert scene.trimmer.run(FEED) == 2

    assert expiring(scene) == [1, 2, 3]


def test_for_ever() -> None:
    """A quiet feed keeps its last pages over months of hourly sweeps."""
    scene = aged(3, records_min=2)
    scene.now_ms += HOUR - scene.now_ms % HOUR
    for _ in range(60 * 24):
        scene.trimmer.run(FEED)
        scene.log.expire(scene.now_ms)
        scene.now_ms += HOUR

    assert [page.number for page in scene.log.read(FEED, 0)] == [2, 3]
    assert scene.log.floor(FEED) == 2
