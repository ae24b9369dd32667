"""The memory of a server does not grow with past requests."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import pytest

from tidings.core.model.filters import Filter, parent_key
from tidings.core.websocket.connections import Subscription
from tidings.server.memory import MemoryKeyUsage, MemorySubscriptions

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
