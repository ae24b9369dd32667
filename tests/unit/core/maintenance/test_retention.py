"""Retention: how far the floor may rise, and which pages always stay.

Renewing: extending pages that must outlive their original time to live.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryConsumers, MemoryRecords
from tests.unit.core.scene import FEED, NOW, PAGE_MS, RETENTION, Scene, line, op, with_archive
from tidings.core import limits
from tidings.core.catchup.catchup import in_log
from tidings.core.consumers.service import ConsumerRetention
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import FOLLOWERS
from tidings.core.maintenance.retention import Renewer, Round, rounds_in
from tidings.core.model.feeds import Retention
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.pages import Page, jump

HOUR = 3_600_000


def followed(scene: Scene, *followers: str) -> None:
    """Let these followers handle everything."""
    for name in followers:
        scene.set_checkpoint(name, scene.log.head(FEED))


def aged(pages: int, *, records_min: int = 0) -> Scene:
    """Return a scene with *pages* pages, one an hour, all of them handled."""
    retention = Retention(age_ms=RETENTION.age_ms, records_min=records_min)
    scene = Scene(now_ms=NOW, retention=retention)
    for _ in range(pages):
        scene.post(op())
        scene.now_ms += HOUR
    followed(scene, *FOLLOWERS)
    return scene


def test_pages_are_given_up_by_age() -> None:
    """With two hours of retention and a page each hour, only the last is younger."""
    scene = aged(10)

    assert scene.retention_service.run(FEED).floor == 10
    assert scene.log.floor(FEED) == 10
    assert scene.counted["FloorRaised"] == 9
    assert scene.retention_service.run(FEED).floor == 10
    assert scene.counted["FloorRaised"] == 9


def jumped(scene: Scene, number: int) -> None:
    """Restore the log, so that it continues above *number*."""
    first, ends = scene.log.head(FEED) + 1, scene.now_ms + PAGE_MS
    scene.log.raise_head(FEED, number)
    scene.log.fill(FEED, [jump(first, number, at_ms=scene.now_ms, expires_ms=ends)])


@pytest.mark.parametrize(("records_min", "floor"), [(0, 6), (2, 6), (4, 4), (6, 2)])
def test_skipped_numbers_are_no_pages(records_min: int, floor: int) -> None:
    """They count as no records, and the floor never lies among them: a cursor there is lost."""
    scene = aged(5, records_min=records_min)
    jumped(scene, 10**9)
    scene.post(op())
    followed(scene, *FOLLOWERS)
    scene.now_ms += HOUR

    assert scene.retention_service.run(FEED).floor == floor
    assert [page.number for page in scene.reader.read(FEED, floor - 1).pages][-1] == 10**9 + 1


@pytest.mark.parametrize("handled", [[], *([name] for name in FOLLOWERS)])
def test_what_a_follower_has_not_handled_stays(handled: list[str]) -> None:
    """A follower that never ran counts as being at the start."""
    scene = Scene(now_ms=NOW)
    for _ in range(5):
        scene.post(op())
    followed(scene, *handled)
    scene.now_ms += 10 * HOUR

    assert scene.retention_service.run(FEED).floor == 1
    followed(scene, *FOLLOWERS)
    assert scene.retention_service.run(FEED).floor == 6


def test_other_followers_hold_the_floor_too() -> None:
    """Any checkpoint that is kept for the feed counts."""
    scene = aged(5)
    scene.set_checkpoint("relay", 3)

    assert scene.retention_service.run(FEED).floor == 4


def test_nothing_is_given_up_that_is_not_archived() -> None:
    """This holds if there is an archive; one that never ran has no pages."""
    scene = aged(5)
    retention_service = with_archive(scene.retention_service, archives=True)

    assert retention_service.run(FEED).floor == 1
    assert scene.archived() == 5
    assert retention_service.run(FEED).floor == 5


def test_an_archive_that_was_turned_off_holds_nothing() -> None:
    """Its checkpoint is kept, and is history."""
    scene = aged(3)
    scene.archived()
    for _ in range(2):
        scene.post(op())
        scene.now_ms += HOUR
    followed(scene, *FOLLOWERS)

    assert with_archive(scene.retention_service, archives=True).run(FEED).floor == 4
    assert scene.retention_service.run(FEED).floor == 5


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
    scene = Scene(now_ms=NOW - 8 * HOUR, retention=retention)
    committed = []
    for number, pause in enumerate(pauses, 1):
        scene.now_ms += pause
        body = "" if number in fillers else line()
        scene.log.put(FEED, Page(scene.log.take(FEED), body, "id", scene.now_ms))
        committed.append(scene.now_ms)
    followed(scene, *FOLLOWERS)
    scene.now_ms = max(NOW, scene.now_ms)

    walked = 0
    while walked < len(committed) - records_min and scene.now_ms - committed[walked] >= 4 * HOUR:
        walked += 1
    assert scene.retention_service.run(FEED).floor == walked + 1


def vanish(scene: Scene, *numbers: int) -> None:
    """Delete these pages as DynamoDB does on expiry."""
    log = scene.log._feeds[FEED]
    for number in numbers:
        del log.pages[number]
    log.numbers = sorted(log.pages)


class Held(ConsumerRetention):
    """A consumer that has handled the first twenty pages."""

    def pages(self, feed: str) -> frozenset[int]:
        return frozenset({20})


def test_a_missing_page_is_never_older_than_what_follows_it() -> None:
    """Otherwise the floor would pass a consumer that is waited for (PROTOCOL 14.7)."""
    scene = Scene(now_ms=NOW)
    pages = [scene.post(op(f"o{number}")) for number in range(40)]
    followed(scene, *FOLLOWERS)
    vanish(scene, 21, 22)
    scene.now_ms += 30 * HOUR
    retention_service = replace(
        scene.retention_service, holds=Held(MemoryConsumers(), Retention(720 * HOUR, 0))
    )

    assert [retention_service.run(FEED).floor for _ in range(3)] == [20, 20, 20]
    step = scene.catch_up.step(FEED, in_log(pages[19].end), EVERYTHING)
    assert step.progress.copying and not step.at_frontier
    assert scene.counted["PagesLost"] == 2
    scene.now_ms += 720 * HOUR
    assert retention_service.run(FEED).floor == 41


def test_pages_that_vanished_block_neither_the_archive_nor_the_floor() -> None:
    """The archive continues after a gap, which is counted, and the floor follows the archive."""
    scene = Scene(now_ms=NOW)
    for number in range(10):
        scene.post(op(f"o{number}"))
    scene.project()
    scene.push()
    scene.set_checkpoint("archive", 3)
    vanish(scene, 4, 5)
    scene.now_ms += 100 * HOUR
    retention_service = with_archive(scene.retention_service, archives=True)

    assert retention_service.run(FEED).floor == 4
    assert scene.archived() == 7
    assert scene.followers.checkpoints(FEED)["archive"] == 10
    assert scene.counted["FollowerFellOff"] == 1 and scene.counted["PagesLost"] > 0
    assert retention_service.run(FEED).floor == 11


def test_a_log_that_vanished_whole_is_not_silent() -> None:
    """The floor rises above it, however many pages had to stay: readers before it get an error."""
    scene = aged(5, records_min=1000)
    vanish(scene, 1, 2, 3, 4, 5)
    assert scene.retention_service.run(FEED).floor == 6
    assert scene.counted["PagesLost"] == 5
    assert scene.reader.read(FEED, 2).trimmed
    assert scene.retention_service.run(FEED).floor == 6
    assert scene.counted["PagesLost"] == 5


def test_no_sweep_renews_what_a_consumer_or_an_archive_holds_for_days() -> None:
    """Ten pages a second for sixty hours, held all the time: nothing expires and nothing is
    written.

    Each page here represents a thousand. Pages used to be extended one by one each hour, which took
    longer than a sweep may.
    """
    retention = Retention(age_ms=24 * HOUR, records_min=0)
    scene = Scene(now_ms=NOW - NOW % HOUR, retention=retention)
    cap = Retention(720 * HOUR, 0)
    retention_service = replace(scene.retention_service, holds=Held(MemoryConsumers(), cap))
    for _ in range(60):
        for _ in range(36):
            page_ms = max(retention.age_ms, cap.age_ms) + limits.TTL_SLACK_MS
            at = scene.now_ms
            number = scene.log.take(FEED)
            scene.log.put(FEED, Page(number, line(), f"a{number}", at, at + page_ms))
            scene.now_ms += HOUR // 36
        followed(scene, *FOLLOWERS)
        retention_service.run(FEED)
        scene.log.expire(scene.now_ms)

    assert [page.number for page in scene.log.read(FEED, 20, 2)] == [21, 22]
    assert len(scene.log._feeds[FEED].pages) == 60 * 36
    assert scene.counted["PagesRenewed"] == scene.counted["PagesLost"] == 0


def test_for_ever() -> None:
    """A quiet feed keeps its last pages over months, each renewed once in the life of a page."""
    scene = aged(3, records_min=2)
    days = 120
    for _ in range(days * 24):
        scene.retention_service.run(FEED)
        scene.log.expire(scene.now_ms)
        scene.now_ms += HOUR

    assert [page.number for page in scene.log.read(FEED, 0)] == [2, 3]
    assert scene.log.floor(FEED) == 2
    lives = days * 24 * HOUR // (PAGE_MS - limits.RENEW_WITHIN_MS)
    assert lives < scene.counted["PagesRenewed"] <= 2 * (lives + 1)
    assert scene.counted["PagesLost"] == 0


SOON = NOW + limits.RENEW_WITHIN_MS


@dataclass
class Renewals:
    """A log with pages that expire at *expiries*, and their renewer."""

    expiries: list[int]
    scene: Scene = field(default_factory=Scene)

    def __post_init__(self) -> None:
        for expires_ms in self.expiries:
            number = self.scene.log.take(FEED)
            self.scene.log.put(FEED, Page(number, line(), "a", NOW, expires_ms))
        self.rounds = rounds_in(MemoryRecords())
        self.renewer = Renewer(log=self.scene.log, rounds=self.rounds, runtime=self.scene.runtime)

    def run(self, first: int, last: int) -> list[int]:
        """Run the renewal; return the pages that were renewed."""
        pages = self.scene.log._feeds[FEED].pages
        before = dict(pages)
        round_, is_due = self.renewer.begin(FEED)
        if is_due:
            self.renewer.run(FEED, round_, first, last)
        return [number for number, kept in pages.items() if kept != before[number]]


def test_what_expires_soon_and_must_stay_is_renewed() -> None:
    """It is renewed for the lifetime of a page, whatever its neighbours' expiry; others are not
    changed.
    """
    far = SOON + 1
    kept = Renewals([SOON - 1, far, SOON - 1, NOW - 5, 0, SOON - 1, far])

    assert kept.run(2, 5) == [3, 4]
    assert dict(kept.scene.log.expiries(FEED, 2, 4)) == {3: NOW + PAGE_MS, 4: NOW + PAGE_MS}
    assert kept.scene.counted["PagesRenewed"] == 2


def test_a_round_is_followed_by_a_rest() -> None:
    """Looking costs a read of all that stays; several rounds lie before any page's time."""
    kept = Renewals([SOON + 1])
    assert kept.run(1, 1) == []
    kept.scene.now_ms += limits.RENEW_EVERY_MS - 1
    assert kept.run(1, 1) == []
    kept.scene.now_ms += 1
    assert kept.run(1, 1) == [1]
    assert 4 * limits.RENEW_EVERY_MS <= limits.RENEW_WITHIN_MS < limits.TTL_SLACK_MS


def test_a_clock_that_was_ahead_delays_no_round() -> None:
    """Pages that must stay would expire in the meantime."""
    kept = Renewals([SOON + 1])
    kept.scene.now_ms += 10 * 24 * HOUR
    kept.run(2, 1)
    kept.scene.now_ms = NOW + limits.RENEW_EVERY_MS
    assert kept.run(1, 1) == [1]


def test_where_nothing_must_stay_there_is_a_rest_too() -> None:
    """Most feeds are like this most of the time: the caller need not compute how far young pages
    reach.
    """
    kept = Renewals([SOON - 1])
    assert kept.run(2, 1) == []
    assert not kept.renewer.begin(FEED)[1]
    kept.scene.now_ms += limits.RENEW_EVERY_MS
    assert kept.run(1, 1) == [1]


def test_a_long_round_takes_several_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each does a bounded part, from where the one before it ended."""
    monkeypatch.setattr(limits, "READ_ITEMS_MAX", 4)
    monkeypatch.setattr(limits, "RENEW_PAGES_MAX", 6)
    kept = Renewals([SOON - 1] * 20)

    assert kept.run(1, 20) == list(range(1, 9))
    kept.scene.now_ms += 60_000
    assert kept.run(3, 20) == list(range(9, 17))
    assert kept.run(3, 20) == list(range(17, 21))
    assert kept.rounds.get(FEED) == Round(0, NOW)


def test_a_sweep_that_dies_loses_no_part_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress is stored with each part; the next sweep does the rest."""
    monkeypatch.setattr(limits, "READ_ITEMS_MAX", 5)
    kept = Renewals([SOON - 1] * 20)
    renew = kept.scene.log.renew

    def dies(feed: str, page: int, expires_ms: int) -> None:
        if page == 13:
            raise Unavailable("killed")
        renew(feed, page, expires_ms)

    monkeypatch.setattr(kept.scene.log, "renew", dies)
    with pytest.raises(Unavailable):
        kept.run(1, 20)
    assert kept.rounds.get(FEED) == Round(10, NOW)
    monkeypatch.setattr(kept.scene.log, "renew", renew)
    assert kept.run(1, 20) == list(range(13, 21))
