"""A server whose wall clock is set while it runs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.unit.server.test_crashes import FEED, Producer, hosted

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
                host.stores.followers.stand(FEED, "push", host.stores.log.head(FEED))
                await asyncio.to_thread(host.sweep)
                floors.append(host.stores.log.floor(FEED))
            return floors

    assert asyncio.run(swept()) == [1, 1, 1]
