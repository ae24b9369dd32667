"""The append protocol in small, in every interleaving; and broken, to see that it is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes import MemoryLog
from tests.model.appending import FEED, Acknowledge, Scenario, write, write_once
from tests.model.explorer import Broken, explore
from tidings.core.log.append import Appender
from tidings.core.log.reader import Reader, Run
from tidings.core.model.pages import Page, encode

TWO_WRITERS = (("a1", "a2"), ("b1", "b2"))
ONE_REQUEST_TWICE = (("same",), ("same",))


class UnconditionalFiller(MemoryLog):
    def put(self, feed: str, page: Page) -> str:
        if not page.body and page.number in self._feeds[feed].pages:
            del self._feeds[feed].pages[page.number]
            self._feeds[feed].numbers.remove(page.number)
        return super().put(feed, page)


class HoleReader(Reader):
    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        pages = self.log.read(feed, after, limit)
        return Run(pages) if pages else super().read(feed, after, limit)


def write_late(appender: Appender, line: str, acknowledge: Acknowledge) -> None:
    page = appender._page(appender.log.take(FEED), encode([line]), appender.runtime.new_id())
    acknowledge(page)
    appender.log.put(FEED, page)


@pytest.mark.parametrize(
    "scenario",
    [Scenario(TWO_WRITERS, rounds=4), Scenario(ONE_REQUEST_TWICE, rounds=3, write=write_once)],
    ids=["two writers", "one request twice"],
)
def test_every_interleaving_keeps_the_log(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    """Acknowledged pages stay, pages once read never change, a key is appended once."""
    explored = explore(scenario.build, crashes_max=2)

    print(f"\n{explored.schedules:,} interleavings, {explored.states:,} states")  # noqa: T201
    record_property("interleavings", explored.schedules)
    assert explored.schedules > 10_000


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(TWO_WRITERS, rounds=4, log=UnconditionalFiller),
        Scenario(TWO_WRITERS, rounds=4, reader=HoleReader),
        Scenario(TWO_WRITERS, rounds=4, write=write_late),
    ],
    ids=["unconditional filler", "reading after a hole", "acknowledged before it is written"],
)
def test_a_broken_protocol_is_noticed(scenario: Scenario) -> None:
    """Each of the three rules of appending is needed: without it, some schedule breaks."""
    with pytest.raises(Broken, match="schedule"):
        explore(scenario.build, crashes_max=2)


def test_the_same_key_without_a_claim_is_noticed() -> None:
    """Two plain appends of one request are in the log twice: the check would see it."""
    with pytest.raises(Broken, match="twice"):
        explore(Scenario(ONE_REQUEST_TWICE, rounds=1, write=write).build, crashes_max=0)
