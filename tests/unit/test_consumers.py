"""A named consumer, from one state to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import consumers, limits
from tidings.core.acknowledged import Span
from tidings.core.consumers import Consumer
from tidings.core.cursors import Place
from tidings.core.errors import ConsumerHeld, FenceLost, InvalidConsumer, NothingDone
from tidings.core.positions import COPY

NOW = 1_763_000_000_000
PLAIN = Consumer("main", "c0")


def at(page: int, slot: int = 0) -> Place:
    return Place(page, slot, 9)


def test_one_worker_at_a_time() -> None:
    """The fence grows with each; who holds it may take it again; an old lease is anybody's."""
    held = consumers.taken(PLAIN, "one", NOW)
    assert (held.owner, held.fence, held.state(NOW)) == ("one", 1, "working")
    assert consumers.taken(held, "one", NOW).fence == 2
    with pytest.raises(ConsumerHeld, match="held by one for 29000 ms"):
        consumers.taken(held, "two", NOW + 1000)
    late = NOW + limits.CONSUMER_LEASE_MS
    assert held.state(late) == "idle"
    assert consumers.taken(held, "two", late).fence == 2


def test_a_worker_that_was_overtaken_says_nothing_more() -> None:
    """Its fence is not the one that holds; nor is any once it was let go."""
    held = consumers.taken(PLAIN, "one", NOW)
    consumers.check_fence(held, 1)
    for gone, fence in ((held, 2), (consumers.released(held), 1), (consumers.unheld(held), 1)):
        with pytest.raises(FenceLost, match="take the lease again"):
            consumers.check_fence(gone, fence)


def test_T15_an_acknowledgement_never_goes_back() -> None:
    """A lower or equal one changes nothing."""
    ahead = consumers.passed(PLAIN, at(5, 3))
    for lower in (at(5, 3), at(5, 2), at(4, 9), COPY):
        assert consumers.passed(ahead, lower) == ahead


def test_what_was_begun_comes_again_one_at_a_time() -> None:
    """After a failure, and after a worker that died; not after one that finished."""
    working = consumers.sending(consumers.taken(PLAIN, "one", NOW), at(9))
    later = NOW + limits.CONSUMER_LEASE_MS
    assert consumers.taken(working, "two", later).single == at(9)
    failed = consumers.failed(working, at(7).encode(), "too long", NOW)
    assert (failed.single, failed.owner, failed.state(NOW)) == (at(9), "", "failed")
    assert consumers.taken(consumers.released(working), "two", NOW).single is None
    done = consumers.passed(consumers.taken(failed, "two", NOW), at(9))
    assert (done.single, done.sent, done.failure) == (None, None, None)


def test_what_was_begun_is_remembered_over_two_failures() -> None:
    """The second one may have begun less."""
    first = consumers.failed(consumers.sending(PLAIN, at(9)), "", "it broke", NOW)
    again = consumers.sending(consumers.taken(first, "one", NOW), at(5))
    assert consumers.failed(again, "", "it broke", NOW).single == at(9)


def test_failures_of_one_message_are_counted() -> None:
    """And forgotten when another one fails, or when it is passed."""
    once = consumers.failed(PLAIN, at(7).encode(), "too long", NOW)
    twice = consumers.failed(once, at(7).encode(), "x" * 9000, NOW + 1)
    assert twice.failure is not None
    assert (twice.failure.times, len(twice.failure.error)) == (2, limits.ERROR_CHARS_MAX)
    other = consumers.failed(twice, at(8).encode(), "too long", NOW)
    assert other.failure is not None
    assert other.failure.times == 1
    assert consumers.passed(twice, at(6)).failure == twice.failure
    assert consumers.passed(twice, at(7)).failure is None
    nobody_knows = consumers.failed(PLAIN, "", "it broke", NOW)
    assert consumers.passed(nobody_knows, at(1)).failure is None


def test_too_much_beyond_a_gap_is_refused() -> None:
    """A consumer stays one small item."""
    many = [at(page) for page in range(2, limits.CONSUMER_SPANS_MAX + 2)]
    full = consumers.confirmed(PLAIN, many)
    assert len(full.acked) == limits.CONSUMER_SPANS_MAX
    with pytest.raises(InvalidConsumer, match="at most 1000 stretches"):
        consumers.confirmed(full, [at(5000)])


def test_T35_forward_is_acknowledged() -> None:
    """What is acknowledged beyond stays so; the worker has to take the lease again."""
    working = replace(consumers.taken(PLAIN, "one", NOW), acked=(Span(3, 0, 0), Span(8, 1, 1)))
    marked = consumers.moved(working, at(5))
    assert (marked.position, marked.acked) == (at(5), (Span(8, 1, 1),))
    assert (marked.owner, marked.fence) == ("", 2)
    with pytest.raises(NothingDone, match="stands there already"):
        consumers.moved(marked, at(5))


def test_T36_back_forgets_nothing() -> None:
    """Everything behind the mark comes again, whatever was acknowledged one by one."""
    ahead = replace(PLAIN, position=at(9), acked=(Span(11, 0, 0),), sent=at(12), single=at(12))
    marked = consumers.moved(ahead, at(4))
    assert (marked.position, marked.acked, marked.single) == (at(4), (), None)
    assert consumers.moved(marked, None).position is None
    assert consumers.moved(marked, COPY).position is COPY


def test_a_filter_is_what_it_is_sent() -> None:
    """None is everything, an empty set nothing."""
    assert consumers.wanted(PLAIN).is_everything
    assert consumers.wanted(replace(PLAIN, types=("a",))).types == frozenset({"a"})
