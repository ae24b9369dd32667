"""Purges, and how readers notice them; every store in memory, and time an argument."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryOperatorDocuments
from tests.unit.core.scene import FEED, Scene, op
from tidings.core.changeagent import config
from tidings.core.changeagent.config import Configuration, Purges
from tidings.core.changeagent.documents import CONFIGURATION, OperatorDocument
from tidings.core.changeagent.list import Query
from tidings.core.errors import BelowFloor
from tidings.core.model.feeds import Retention

HOUR_MS = 3_600_000


class Purging:
    """A feed of *records* changes that are two minutes old, and what its operator allows."""

    def __init__(self, records: int = 100) -> None:
        self.scene = Scene(retention=Retention(age_ms=1000 * HOUR_MS, records_min=0))
        self.operator_documents = MemoryOperatorDocuments()
        for number in range(records):
            self.scene.post(op(str(number)))
        self.scene.project()
        self.scene.push()
        self.scene.now_ms += 120_000
        self.lister = self.scene.lister()

    def allow(self, records: int, seconds: int) -> None:
        found = Configuration(purge_records=records, purge_ns=seconds * 1_000_000_000)
        assert self.operator_documents.write(
            FEED, CONFIGURATION, OperatorDocument(config.encode_configuration(found))
        )

    def run(self, purge: Retention | None = None) -> list[int]:
        """Purge; the numbers of the changes that remain, from 1."""
        scene = self.scene
        rule = Purges(self.operator_documents) if purge is None else lambda feed: purge
        replace(scene.retention_service, rules=(rule,)).run(FEED)
        return [number >> 10 for number in self.numbers()]

    def numbers(self, since: int = 0, *, strict: bool = False) -> list[int]:
        query = Query(since=since, limit=1000, strict=strict)
        entries = self.lister.list(FEED, query).entries
        return [int(entry.partition(":")[2].partition(",")[0]) for entry in entries]


@pytest.mark.parametrize(("records", "seconds"), [(0, 0), (50, 0), (0, 60)])
def test_A24_without_both_nothing_is_purged(records: int, seconds: int) -> None:
    """Neither the number nor the age alone is a rule."""
    purging = Purging()
    purging.allow(records, seconds)

    assert purging.run() == list(range(1, 101))


def test_A25_the_newest_remain() -> None:
    """A hundred old changes with fifty to keep: the last fifty remain."""
    purging = Purging()
    purging.allow(50, 60)

    assert purging.run() == list(range(51, 101))


def test_A26_age_counts_and_all_may_go() -> None:
    """Nothing that is younger; and everything where nothing is to be kept."""
    purging = Purging()
    purging.allow(1, 600)
    assert purging.run() == list(range(1, 101))

    assert purging.run(Retention(age_ms=600_000, records_min=0)) == list(range(1, 101))
    assert purging.run(Retention(age_ms=60_000, records_min=0)) == []


def test_A27_a_purge_never_passes_the_slowest() -> None:
    """A named follower of the feed has read every purged change."""
    purging = Purging()
    purging.allow(10, 60)
    lease = purging.scene.followers.take(FEED, "slow", owner="o", now_ms=purging.scene.now_ms)
    assert lease is not None
    purging.scene.followers.release(replace(lease, checkpoint=30))

    assert purging.run() == list(range(31, 101))


def test_A28_who_is_below_the_floor_can_tell() -> None:
    """`floor` is in every reply; a strict reader is refused, with the place to continue from."""
    purging = Purging()
    purging.allow(50, 60)
    purging.run()
    found = purging.lister.list(FEED, Query(since=5 << 10, limit=3))

    assert found.floor > 5 << 10 and found.at_start
    assert [number >> 10 for number in purging.numbers(5 << 10)][:2] == [51, 52]
    with pytest.raises(BelowFloor) as refused:
        purging.numbers(5 << 10, strict=True)
    assert refused.value.status == 410
    assert purging.numbers(refused.value.floor, strict=True) == purging.numbers()


def test_what_is_purged_has_no_id_any_more() -> None:
    """Although its page may linger until it expires."""
    purging = Purging()
    purging.allow(50, 60)
    purging.run()

    assert '"_id":52224' in purging.lister.one(FEED, 51 << 10)
    with pytest.raises(Exception, match="Not found"):
        purging.lister.one(FEED, 50 << 10)
