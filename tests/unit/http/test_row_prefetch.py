"""Reading a copy ahead: the same rows in the same order, earlier."""

from __future__ import annotations

import gc
import threading

import pytest

from tests.fakes import MemoryState
from tests.unit.core.scene import FEED, NOW, line
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.state.rows import Lines, Row, StateStore
from tidings.http.streams.row_prefetch import ReadAhead

ROWS = 700


class Slow(MemoryState):
    """Records the reads that were begun, and blocks them until *go* is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, str | None]] = []
        self.go, self.fails = threading.Event(), False
        self.go.set()

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        self.begun.append((bucket, after))
        assert self.go.wait(60)
        if self.fails:
            raise Unavailable("no answer")
        return super().lines(feed, bucket, after)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Return a state whose buckets take several reads each."""
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 1_000)
    state = Slow()
    state.write(FEED, [Row(f"video/{n}", 1, n, NOW, line(f"{n}")) for n in range(ROWS)])
    return state


def whole(states: StateStore) -> list[str]:
    """Return all lines, as a copy reads them."""
    lines: list[str] = []
    for bucket in range(limits.BUCKETS):
        read = states.lines(FEED, bucket)
        lines += read.lines
        while read.after is not None:
            read = states.lines(FEED, bucket, read.after)
            lines += read.lines
    return lines


def test_the_same_in_the_same_order(state: Slow) -> None:
    """No row is read twice."""
    plain = whole(state)
    expected, state.begun = sorted(state.begun, key=str), []

    assert whole(ReadAhead()(state)) == plain
    assert sorted(state.begun, key=str) == expected
    assert len(plain) == ROWS


def test_the_next_buckets_are_asked_for_at_once(state: Slow) -> None:
    """They are read in parallel with the current one, before it has been answered; at most two of
    them.
    """
    copy = ReadAhead()(state)
    state.go.clear()
    reading = threading.Thread(target=copy.lines, args=(FEED, 3))
    reading.start()
    try:
        while len(state.begun) < 3:
            reading.join(0.01)
        reading.join(0.05)
        assert sorted(bucket for bucket, _ in state.begun) == [3, 4, 5]
    finally:
        state.go.set()
        reading.join()


def test_an_error_is_told_where_its_rows_were_due(state: Slow) -> None:
    """The earlier read succeeds; the next attempt reads again."""
    copy = ReadAhead()(state)
    first = copy.lines(FEED, 0)
    while first.after is not None:
        first = copy.lines(FEED, 0, first.after)
    state.fails = True
    with pytest.raises(Unavailable):
        for bucket in range(1, 5):
            copy.lines(FEED, bucket)


def test_few_copies_at_a_time(state: Slow) -> None:
    """The next one reads for itself, until one is complete or forgotten."""
    ahead = ReadAhead(copies=2)
    one, two = ahead(state), ahead(state)
    assert ahead(state) is state

    assert len(whole(one)) == ROWS
    three = ahead(state)
    assert three is not state and ahead(state) is state

    del two
    gc.collect()
    assert ahead(state) is not state
    assert len(whole(one)) == len(whole(three)) == ROWS
