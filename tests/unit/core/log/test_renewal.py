"""Renewing: what must outlive the time to live it was written with."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.unit.core.scene import FEED, NOW, PAGE_MS, Scene, line, one_by_one
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.maintenance.retention import Renewer, Round
from tidings.core.model.pages import Page

SOON = NOW + limits.RENEW_WITHIN_MS


@dataclass
class Renewals:
    """A log with pages that expire at *expiries*, and who renews them."""

    expiries: list[int]
    scene: Scene = field(default_factory=Scene)

    def __post_init__(self) -> None:
        for expires_ms in self.expiries:
            number = self.scene.log.take(FEED)
            self.scene.log.put(FEED, Page(number, line(), "a", NOW, expires_ms))
        clock, count = self.scene.clock, self.scene.count
        self.renewer = Renewer(self.scene.log, one_by_one, clock, count, PAGE_MS)

    def run(self, first: int, last: int) -> list[int]:
        """The pages that were renewed."""
        pages = self.scene.log._feeds[FEED].pages
        before = dict(pages)
        if (round_ := self.renewer.begin(FEED)) is not None:
            self.renewer.run(FEED, round_, first, last)
        return [number for number, kept in pages.items() if kept != before[number]]


def test_what_expires_soon_and_must_stay_is_renewed() -> None:
    """For the life of a page, however its neighbours expire; others are left alone."""
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


def test_where_nothing_must_stay_there_is_a_rest_too() -> None:
    """As in most feeds, most of the time: who runs it need not look how far the young pages go."""
    kept = Renewals([SOON - 1])
    assert kept.run(2, 1) == []
    assert kept.renewer.begin(FEED) is None
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
    assert kept.scene.log.round(FEED) == Round(0, NOW)


def test_a_sweep_that_dies_loses_no_part_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is kept with each part; what is behind it is done by the next sweep."""
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
    assert kept.scene.log.round(FEED).page == 10
    monkeypatch.setattr(kept.scene.log, "renew", renew)
    assert kept.run(1, 20) == list(range(13, 21))
