"""A disk with a single failed read: every follower of the log continues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.server.test_crashes import FEED, Producer, _status, hosted
from tests.unit.server.test_recovery import UPSTREAM
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import ARCHIVE
from tidings.core.model.feeds import PUSH, STATE
from tidings.core.model.pages import Page
from tidings.core.replication.admin import Action
from tidings.core.replication.relay import Relay
from tidings.server import wakeups, writer
from tidings.server.sqlite.log import SqliteLog, SqliteRelays
from tidings.server.sqlite.state import SqliteState

WITHIN_S = 180.0
PAGES = 200  # more than are handled before the server ends


@pytest.mark.parametrize("error", [Unavailable("disk I/O error"), ValueError("a mistake")])
def test_a_read_that_fails_once_stops_no_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Each reads again after a moment; no other process would release its lease."""
    read, failed = SqliteLog.read, set[str]()

    def fail_once(log: SqliteLog, *of: Any, **more: Any) -> Any:
        name = threading.current_thread().name
        if name.startswith("follow-") and name not in failed:
            failed.add(name)
            raise error
        return read(log, *of, **more)

    async def main() -> None:
        async with hosted(tmp_path / "feed.db", tmp_path / "archive") as (host, app):
            monkeypatch.setattr(SqliteLog, "read", fail_once)
            async with asyncio.timeout(WITHIN_S):
                await Producer(app, "p").post(1)
                host.waker.wake(FEED, ARCHIVE)
                head = await asyncio.to_thread(host.stores.log.head, FEED)
                wanted = dict.fromkeys((STATE, PUSH, ARCHIVE), head)
                while host.stores.followers.checkpoints(FEED) != wanted:
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert failed == {f"follow-{name}" for name in (PUSH, ARCHIVE)}


def test_a_projection_that_fails_once_holds_up_no_post(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is acknowledged, and the state has its rows a moment later."""
    write, errors = SqliteState.write, [ValueError("a mistake")]

    def fail_once(state: SqliteState, *of: Any) -> Any:
        if errors:
            raise errors.pop()
        return write(state, *of)

    async def main() -> None:
        async with hosted(tmp_path / "feed.db") as (host, app):
            committed, states = host.database.steps.committed, list[int]()

            def note(pages: Sequence[tuple[str, Page]]) -> None:
                states.append(host.stores.followers.checkpoints(FEED).get(STATE, 0))
                committed(pages)

            host.database.steps = replace(host.database.steps, committed=note)
            monkeypatch.setattr(SqliteState, "write", fail_once)
            async with asyncio.timeout(WITHIN_S):
                await Producer(app, "p").post(1)
                head = host.stores.log.head(FEED)
                assert head and states[0] < head
                while host.stores.followers.checkpoints(FEED).get(STATE) != head:
                    await asyncio.sleep(0.01)
                await Producer(app, "p").post(1)
                assert host.stores.followers.checkpoints(FEED)[STATE] == head + 1

    asyncio.run(main())


@pytest.mark.parametrize("error", [Unavailable("disk I/O error"), ValueError("a mistake")])
def test_a_registry_that_fails_once_stops_no_webhook(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The thread that looks for webhooks looks again."""
    monkeypatch.setattr(wakeups, "LOOK_S", 0.01)
    answers: Iterator[Any] = chain([error], repeat({"hook": object()}))
    called = threading.Event()

    class Registry:
        def all(self, feed: str) -> Any:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    class WebhookDelivery:
        def run(self, feed: str, hook: object, *, look: bool) -> None:
            called.set()

    registry: Any = Registry()
    delivery: Any = WebhookDelivery()
    webhooks = wakeups.Webhooks(registry, delivery, lambda: [FEED], lambda: 0, lambda: None)
    webhooks.start()
    assert called.wait(WITHIN_S)
    webhooks.stop()


def test_a_read_that_fails_once_makes_no_promoted_feed_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the answer of another read; if both fail, producers try again."""
    read, left = SqliteRelays.relay, 0

    def fail(relays: SqliteRelays, feed: str) -> Relay:
        nonlocal left
        left -= 1
        if left >= 0:
            raise Unavailable("disk I/O error")
        return read(relays, feed)

    async def main() -> list[int]:
        nonlocal left
        async with hosted(tmp_path / "feed.db", TIDINGS_SOURCES=UPSTREAM) as (host, app):
            act = host.relay_control.act
            await asyncio.to_thread(act, FEED, Action.PROMOTE, {"why": "a test"})
            monkeypatch.setattr(SqliteRelays, "relay", fail)
            statuses = []
            for fails in (2, 1, 0):
                left = fails
                monkeypatch.setattr(host.copies, "_cached", {})
                statuses.append(await _status(app, b'{"event":"update","type":"a","id":"b"}'))
            return statuses

    assert asyncio.run(main()) == [503, 204, 204]


def test_a_state_that_is_behind_does_not_delay_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The slices stop, and the next process continues from the checkpoint."""
    monkeypatch.setattr(writer, "SLICE_OPERATIONS", 1)
    path = tmp_path / "feed.db"

    def fail(*_: Any) -> Any:
        raise ValueError("a mistake")

    async def main(*, fails: bool) -> None:
        async with hosted(path) as (host, app):
            if fails:
                with monkeypatch.context() as broken:
                    broken.setattr(SqliteState, "write", fail)
                    for _ in range(PAGES):
                        await Producer(app, "p").post(1)
                host.waker.wake(FEED, STATE)
                return
            head = host.stores.log.head(FEED)
            assert head == PAGES
            async with asyncio.timeout(WITHIN_S):
                while host.stores.followers.checkpoints(FEED).get(STATE) != head:
                    await asyncio.sleep(0.01)

    asyncio.run(main(fails=True))
    assert {type(each.exc_info[1]) for each in caplog.records if each.exc_info} <= {ValueError}
    asyncio.run(main(fails=False))


def test_a_thread_that_cannot_start_stops_no_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits until the operating system has a thread again."""
    monkeypatch.setattr(wakeups, "LOOK_S", 0.05)
    start, refused, ran = threading.Thread.start, list[str](), threading.Event()

    def start_later(thread: threading.Thread) -> None:
        if thread.name.startswith("webhook_") and len(refused) < 2:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    def run(*_: object, **__: object) -> None:
        ran.set()

    monkeypatch.setattr(threading.Thread, "start", start_later)
    registry: Any = SimpleNamespace(all=lambda feed: {"h": object()})
    delivery: Any = SimpleNamespace(run=run)
    webhooks = wakeups.Webhooks(registry, delivery, lambda: [FEED], lambda: 0, lambda: None)
    webhooks.start()
    assert ran.wait(30) and len(refused) == 2
    webhooks.stop()


def test_a_feed_that_fails_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others run until its run is repeated; what wakes it earlier changes nothing."""
    monkeypatch.setattr(wakeups, "AGAIN_S", WITHIN_S)
    ran: SimpleQueue[str] = SimpleQueue()

    def run(feed: str) -> None:
        ran.put(feed)
        if feed == "bad":
            raise Unavailable("disk I/O error")

    async def main() -> None:
        runs = wakeups.Runs("a", run, lambda: 0.0, asyncio.get_running_loop())
        runs.start()
        for feed in ("bad", "good", "other"):
            runs.wake(feed)
        got = partial(asyncio.to_thread, ran.get, timeout=WITHIN_S)
        assert [await got() for _ in range(3)] == ["bad", "good", "other"]
        for feed in ("bad", "good"):
            runs.wake(feed)
        assert await got() == "good"
        assert ran.empty()
        runs._retries._again("bad")
        assert await got() == "bad"
        runs.stop()
        await asyncio.to_thread(runs.join)

    asyncio.run(main())
