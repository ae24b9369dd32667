"""A server with an archive in a folder, and one whose wall clock is set while it runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.server.test_crashes import BEFORE_THE_FIRST, FEED, Consumer, Producer, hosted
from tidings.core import limits
from tidings.core.log.reader import Run
from tidings.server import host as hosts
from tidings.server.host import Host

POSTS = 30
WITHIN_S = 180.0


def _give_up(host: Host) -> None:
    """Trim all pages except the last one."""
    host.stores.log.raise_floor(FEED, POSTS)
    host.database.write(lambda sql: sql.execute("DELETE FROM pages WHERE page < ?", (POSTS,)))


async def _play(folder: Path) -> tuple[list[str], list[str]]:
    """Return the posted ids, and those that a consumer from the beginning gets after the log is
    trimmed.
    """
    archive = folder / "kept"
    async with hosted(folder / "feed.db", archive) as (host, app):
        producer = Producer(app, "p")
        await producer.post(POSTS)
        await asyncio.to_thread(host.sweep)  # which wakes the archive's follower
        async with asyncio.timeout(WITHIN_S):
            while host.stores.followers.checkpoints(FEED).get("archive", 0) < POSTS:
                await asyncio.sleep(0.01)
        assert list((archive / "archive" / FEED).iterdir())
        await asyncio.to_thread(_give_up, host)
        consumer = Consumer(app, BEFORE_THE_FIRST)
        async with asyncio.timeout(WITHIN_S):
            await consumer.listen(POSTS)
        return producer.acknowledged, consumer.heard


def test_what_the_log_gave_up_is_heard_in_order(tmp_path: Path) -> None:
    """Each operation, as it was; without an archive it would be a copy of the state."""
    posted, heard = asyncio.run(_play(tmp_path))
    assert heard == posted


DAY_NS = 24 * 3_600 * 10**9


def test_a_clock_that_is_ahead_for_a_while_trims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The floor cannot fall again after the clock was corrected."""
    now_ns, ahead_ns = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + ahead_ns)

    async def swept() -> list[int]:
        nonlocal ahead_ns
        path = tmp_path / "feed.db"
        async with hosted(path, TIDINGS_RECORDS_MIN="0") as (host, app):
            await Producer(app, "p").post(5)
            ahead_ns, floors = 40 * DAY_NS, []
            for _ in range(3):
                host.stores.followers.set_checkpoint(FEED, "push", host.stores.log.head(FEED))
                await asyncio.to_thread(host.sweep)
                floors.append(host.stores.log.floor(FEED))
            return floors

    assert asyncio.run(swept()) == [1, 1, 1]


def test_a_clock_that_is_set_back_prolongs_no_cached_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of a cached value is measured by a clock that is never set."""

    async def found() -> list[str]:
        async with hosted(tmp_path / "feed.db") as (host, _):
            before = await asyncio.to_thread(host.profiles.profile, FEED)
            changed = replace(before, object_url="https://changed.example/{id}")
            assert await asyncio.to_thread(host.stores.profiles.save, FEED, changed)
            passed_s, set_back_s = limits.PROFILE_AGE_MS / 1000, 2
            stepped = SimpleNamespace(
                monotonic=lambda: time.monotonic() + passed_s,
                time_ns=lambda: time.time_ns() + round((passed_s - set_back_s) * 10**9),
                sleep=time.sleep,
            )
            monkeypatch.setattr(hosts, "time", stepped)
            after = await asyncio.to_thread(host.profiles.profile, FEED)
            return [before.object_url, after.object_url]

    assert asyncio.run(found()) == ["", "https://changed.example/{id}"]


def test_a_clock_that_steps_by_a_day_makes_no_hole_a_lost_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of a hole that an earlier release left is not measured by the wall clock alone."""
    now_ns, ahead_ns = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + ahead_ns)

    async def found() -> Run:
        nonlocal ahead_ns
        async with hosted(tmp_path / "feed.db") as (host, app):
            await Producer(app, "p").post(1)
            await asyncio.to_thread(host.stores.log.take, FEED)
            await Producer(app, "q").post(1)
            ahead_ns = DAY_NS
            return await asyncio.to_thread(host.reader.read, FEED, 1)

    assert asyncio.run(found()) == Run([], waiting=True, floor=1)
