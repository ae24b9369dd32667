"""The memory of a server grows neither with past requests nor with feeds that rest."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.unit.server.test_crashes import hosted
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, KeyIssuer, PresentedKey
from tidings.core.consumers.consumer import Consumer
from tidings.core.model.filters import Filter, parent_key
from tidings.core.model.operations import line_from
from tidings.core.websocket.connections import Subscription
from tidings.server import metrics, wakeups
from tidings.server.host import Host, now_ms
from tidings.server.memory import MemoryKeyUsage, MemorySubscriptions
from tidings.server.sqlite import database

LANE, MANY = "main", 1_000


def objects_of(store: object) -> int:
    """Return the number of objects that *store* keeps, without its code."""
    seen: set[int] = set()
    waiting = [store]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not isinstance(each, (type, ModuleType, FunctionType)):
            seen.add(id(each))
            waiting += gc.get_referents(each)
    return len(seen)


@pytest.fixture
def subscriptions() -> MemorySubscriptions:
    """Return subscriptions with one that stays, so that searches find something."""
    subscriptions = MemorySubscriptions()
    subscriptions.add(LANE, Subscription("stays", Filter(parents=frozenset({"user/x"})), since=0))
    return subscriptions


def test_keys_that_nobody_wants_are_not_kept(subscriptions: MemorySubscriptions) -> None:
    """A push looks for the parents of every operation, where subscriptions are many."""
    before = objects_of(subscriptions)
    for each in range(MANY):
        assert not subscriptions.find(LANE, parent_key(f"user/{each}"))
    assert objects_of(subscriptions) == before


def test_nothing_is_kept_of_a_subscription_that_has_ended(
    subscriptions: MemorySubscriptions,
) -> None:
    """This holds for any filter, and for a subscription that was not there."""
    before = objects_of(subscriptions)
    for each in range(MANY):
        ends = Subscription("c", Filter(parents=frozenset({f"user/{each}", "user/x"})), since=0)
        subscriptions.add(LANE, ends)
        subscriptions.remove(LANE, ends)
        subscriptions.remove(LANE, ends)
    assert objects_of(subscriptions) == before
    (stays,) = subscriptions.find(LANE, parent_key("user/x"))
    assert stays.connection_id == "stays"


def test_counts_of_windows_that_are_over_are_not_kept() -> None:
    """A key that is used all the time has a new window every ten seconds."""
    counts, first = MemoryKeyUsage(), 410_244_480
    for window in (first, first + 1):
        counts.add(LANE, "a", window, 3)
    before = objects_of(counts)
    for window in range(first + 2, first + MANY):
        assert counts.add(LANE, "a", window, 3) == 3
    assert objects_of(counts) == before


def test_a_count_that_comes_late_adds_up_all_the_same() -> None:
    """It is added to the window before, although another thread has begun the next one."""
    counts, window = MemoryKeyUsage(), 410_244_480
    counts.add(LANE, "a", window, 3)
    counts.add(LANE, "a", window + 1, 1)
    assert counts.add(LANE, "a", window, 4) == 7
    assert counts.add(LANE, "a", window + 1, 1) == 2


ACTIVE = 3


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let push handle one feed right after the other."""
    monkeypatch.setattr(wakeups, "PAUSE_S_MAX", 0.0)


def name_of(number: int) -> str:
    return f"feed-{number:04d}"


def feeds_of(count: int) -> dict[str, Any]:
    return {"TIDINGS_FEEDS": ",".join(map(name_of, range(count)))}


def post(host: Host, feeds: int) -> None:
    """Append a page to each of the first *feeds* feeds, in one commit."""
    line = line_from({"event": "update", "type": "video", "id": "a"}, now_ms=now_ms())

    def append(_: object) -> None:
        for number in range(feeds):
            host.appender.append(name_of(number), [line])

    host.database.write(append)


def use(host: Host, feeds: int) -> None:
    """Give each feed a page, a consumer at the end of the log, a profile and a key."""
    post(host, feeds)
    issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms)

    def write(_: object) -> None:
        for number in range(feeds):
            feed = name_of(number)
            host.consumers.register(feed, "c", Consumer(feed, "c", Filter()), "now")
            issuer.create(
                feed, PresentedKey(f"{number:012}", "s" * 32), Key("", "", frozenset({Role.READ}))
            )

    host.database.write(write)


async def pushed(host: Host, feeds: int) -> None:
    """Wait until push, which runs in a thread, has handled all pages of the first *feeds* feeds."""
    for number in range(feeds):
        feed = name_of(number)
        while any(
            lease.owner or lease.checkpoint < host.stores.log.head(feed)
            for lease in host.stores.followers.leases(feed)
        ):
            await asyncio.sleep(0.01)


async def settled(path: Path, count: int) -> None:
    """Write a file with *count* feeds that a server has used and settled."""
    async with hosted(path, **feeds_of(count)) as (host, _):
        await asyncio.to_thread(use, host, count)
        await pushed(host, count)
        for _ in range(3):
            await asyncio.to_thread(host.sweep)
        assert host.stores.due_feeds.due(now_ms()) == []


class Statements:
    """The statements that a server executes, except for those of threads that it wakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executed: list[str] = []
        connect = database._open

        def traced(*arguments: Any) -> sqlite3.Connection:
            connection = connect(*arguments)
            connection.set_trace_callback(self._note)
            return connection

        monkeypatch.setattr(database, "_open", traced)

    def _note(self, statement: str) -> None:
        if not threading.current_thread().name.startswith(("webhook", "follow")):
            self.executed.append(statement)

    def taken(self) -> int:
        """Return the number of statements since the last call."""
        count = len(self.executed)
        self.executed.clear()
        return count


async def _counts(path: Path, count: int, statements: Statements) -> dict[str, int]:
    found: dict[str, int] = {}
    statements.taken()
    async with hosted(path, **feeds_of(count)) as (host, _):

        async def measure(what: str, run: Callable[..., object], *arguments: object) -> None:
            await asyncio.to_thread(run, *arguments)
            found[what] = statements.taken()

        found["start"] = statements.taken()
        await measure("first sweep", host.sweep)
        await measure("posts", post, host, ACTIVE)
        await pushed(host, ACTIVE)
        statements.taken()
        for minute in range(4):
            await measure(f"sweep {minute} after posts", host.sweep)
        await measure("later posts", post, host, ACTIVE)
    return found


def test_a_server_executes_as_many_statements_with_more_idle_feeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it starts, when it sweeps before and after posts, and when it appends."""
    found = {}
    for count in (10, 1_000):
        path = tmp_path / f"{count}.db"
        with pytest.MonkeyPatch.context() as patch:
            asyncio.run(settled(path, count))
            found[count] = asyncio.run(_counts(path, count, Statements(patch)))

    # A busy machine groups the writes of threads in other ways.
    more = {what: found[1_000][what] - count for what, count in found[10].items()}
    assert max(more.values()) <= 10, more
    assert found[10]["start"] < 60 and found[10]["first sweep"] < 60
    assert found[10]["posts"] > ACTIVE


def test_an_idle_feed_is_not_in_memory(tmp_path: Path) -> None:
    """Its followers are loaded when it is used."""

    async def run() -> None:
        await settled(tmp_path / "feed.db", 20)
        async with hosted(tmp_path / "feed.db", **feeds_of(20)) as (host, _):
            await asyncio.to_thread(host.sweep)
            assert not host.stores.followers._feeds and not host.database.marks
            await asyncio.to_thread(post, host, 1)
            assert [*host.stores.followers._feeds] == [*host.database.marks] == [name_of(0)]

    asyncio.run(run())


def test_work_that_a_killed_server_left_is_found_at_the_start(tmp_path: Path) -> None:
    """Its mark is in the same commit as its page, also before any sweep."""

    async def run() -> None:
        await settled(tmp_path / "feed.db", 20)
        async with hosted(tmp_path / "feed.db", **feeds_of(20)) as (host, _):
            host.state._stopped = True  # as if it was killed before the state has handled the page
            host.database.steps = replace(host.database.steps, write_more=lambda pages: None)
            await asyncio.to_thread(post, host, 2)
        async with hosted(tmp_path / "feed.db", **feeds_of(20)) as (host, _):
            due = [each.feed for each in host.stores.due_feeds.due(now_ms())]
            assert due == [name_of(0), name_of(1)]
            async with asyncio.timeout(60):
                followers, done = host.stores.followers, {"push": 2, "state": 2}
                while any(followers.checkpoints(name_of(number)) != done for number in range(2)):
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(host.database.write, lambda _: None)
            assert not host.stores.due_feeds.lagging()

    asyncio.run(run())


def labels(text: str, family: str) -> Counter[str]:
    lines = [line for line in text.splitlines() if line.startswith(f"{family}{{")]
    return Counter(line.partition('feed="')[2].partition('"')[0] for line in lines)


def test_metrics_have_labels_for_a_few_feeds_and_sums_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feeds that were posted to last have labels. A late consumer of another one is visible."""
    monkeypatch.setattr(limits, "FEEDS_NAMED", 4)

    async def run() -> None:
        async with hosted(tmp_path / "feed.db", **feeds_of(10)) as (host, _):
            await asyncio.to_thread(use, host, 10)
            text = await asyncio.to_thread(metrics.render_metrics, host)
            assert [*labels(text, "tidings_log_head")] == [*map(name_of, range(6, 10)), ""]
            assert 'tidings_log_head{feed=""} 6\n' in text
            assert 'tidings_follower_lag{feed="",follower="state"} 0\n' in text
            assert labels(text, "tidings_consumer_lag")[""] == 0

            await asyncio.to_thread(post, host, 2)  # their consumers are late now
            monkeypatch.setattr(limits, "FEEDS_NAMED", 1)
            await asyncio.to_thread(post, host, 1)
            await asyncio.to_thread(host.sweep)
            text = await asyncio.to_thread(metrics.render_metrics, host)
            assert labels(text, "tidings_log_head") == {name_of(0): 1, "": 1}
            assert 'tidings_consumer_lag{feed="feed-0000",consumer="c"} 2\n' in text
            assert 'tidings_consumer_lag{feed="",consumer=""} 1\n' in text
            assert 'tidings_consumer_fell_off{feed="",consumer=""} 0\n' in text

    asyncio.run(run())


def test_9_10_the_history_has_what_was_posted_and_sent(tmp_path: Path) -> None:
    """With the lag of each follower and consumer; a feed without changes has no samples."""

    async def run() -> None:
        async with hosted(tmp_path / "feed.db", **feeds_of(3)) as (host, _):
            await asyncio.to_thread(use, host, 2)
            await asyncio.to_thread(post, host, 1)
            await pushed(host, 2)
            serve = partial(host.stores.counters.serve, name_of(1), connections=1, sent=7)
            await asyncio.to_thread(serve)
            await asyncio.to_thread(host.sweep)
            first, second, third = (host.history.samples(name_of(at)) for at in range(3))
            assert [(each.operations, each.events, each.head) for each in first] == [(2, 0, 2)]
            assert first[0].lags == {"push": 0, "state": 0, "consumer c": 1}
            assert [(each.operations, each.events, each.head) for each in second] == [(1, 7, 1)]
            assert third == []

    asyncio.run(run())
