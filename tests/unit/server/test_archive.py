"""A server with an archive in a folder: trimmed pages are served from there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.server.test_crashes import BEFORE_THE_FIRST, FEED, Consumer, Producer, hosted
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
