"""Planning a fan-out costs what matches, not what is connected."""

from __future__ import annotations

import time
from functools import partial

from tidings.core.model.filters import Filter
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.websocket import fanout
from tidings.core.websocket.connections import Subscription

from bench.sections import Section
from bench.workload import operations
from tests.fakes import MemorySubscriptions

_FEED = "main"
_MATCHING = 10
_ROUNDS = 200


def _subscribed(total: int, wanted: list[str]) -> MemorySubscriptions:
    watches = MemorySubscriptions()
    for at in range(total):
        parent = wanted[at % len(wanted)] if at < _MATCHING else f"user/nobody-{at}"
        watches.add(_FEED, Subscription(f"c{at}", Filter(None, frozenset({parent})), 0))
    return watches


def _seconds(watches: MemorySubscriptions, page: Page) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        index = fanout.Index.of(partial(watches.find, _FEED), partial(watches.all, _FEED))
        found = fanout.plan([page], index)
        best = min(best, time.perf_counter() - started)
        assert len(found.wanted) == _MATCHING
    return best


def measure() -> Section:
    batch = list(operations(100))
    page = Page(1, encode([line_from(raw, now_ms=0) for raw in batch]), "a", 0)
    wanted = [raw["parents"][1] for raw in batch[:_MATCHING]]
    few, many = (_seconds(_subscribed(total, wanted), page) for total in (100, 100_000))
    return Section(
        "Planning a fan-out",
        "100,000 subscriptions of which 10 match cost at most 2 times 100 of which 10 match",
        [
            ("100 subscriptions, a page of 100 operations", f"{few * 1e6:,.0f} us"),
            ("100,000 subscriptions, the same page", f"{many * 1e6:,.0f} us"),
            ("ratio", f"{many / few:.2f}"),
        ],
        met=many / few <= 2,
        notes=[f"Best of {_ROUNDS} rounds in one process; the index is the one in memory."],
    )
