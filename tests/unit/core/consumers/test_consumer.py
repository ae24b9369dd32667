"""A named consumer, from one state to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidings.core import limits
from tidings.core.consumers import consumer
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.position import COPY, Span
from tidings.core.errors import ConsumerHeld, FenceLost, InvalidConsumer, NothingDone
from tidings.core.model.cursors import Place

NOW = 1_763_000_000_000
PLAIN = Consumer("main", "c0")


def at(page: int, slot: int = 0) -> Place:
    return Place(page, slot, 9)


def test_one_worker_at_a_time() -> None:
    """The fence grows with each lease; the holder may renew it, and any worker may take an old
    one."""
    held = consumer.acquire(PLAIN, "one", NOW)
    assert (held.owner, held.fence, held.state(NOW)) == ("one", 1, "working")
    assert consumer.acquire(held, "one", NOW).fence == 2
    with pytest.raises(ConsumerHeld, match="held by one for 29000 ms"):
        consumer.acquire(held, "two", NOW + 1000)
    late = NOW + limits.CONSUMER_LEASE_MS
    assert held.state(late) == "idle"
    assert consumer.acquire(held, "two", late).fence == 2


def test_a_worker_that_was_overtaken_says_nothing_more() -> None:
    """Its fence is no longer valid; after a release no fence is valid."""
    held = consumer.acquire(PLAIN, "one", NOW)
    consumer.check_fence(held, 1)
    for gone, fence in ((held, 2), (consumer.release(held), 1), (consumer.revoke_lease(held), 1)):
        with pytest.raises(FenceLost, match="take the lease again"):
            consumer.check_fence(gone, fence)


def test_T15_an_acknowledgement_never_goes_back() -> None:
    """A lower or equal one changes nothing."""
    ahead = consumer.ack_through(PLAIN, at(5, 3))
    for lower in (at(5, 3), at(5, 2), at(4, 9), COPY):
        assert consumer.ack_through(ahead, lower) == ahead


def test_what_was_begun_comes_again_one_at_a_time() -> None:
    """This is so after a failure, and after a worker that crashed; not after one that finished."""
    working = consumer.sending(consumer.acquire(PLAIN, "one", NOW), at(9))
    later = NOW + limits.CONSUMER_LEASE_MS
    assert consumer.acquire(working, "two", later).single == at(9)
    failed = consumer.fail(working, at(7).encode(), "too long", NOW)
    assert (failed.single, failed.owner, failed.state(NOW)) == (at(9), "", "failed")
    assert consumer.acquire(consumer.release(working), "two", NOW).single is None
    done = consumer.ack_through(consumer.acquire(failed, "two", NOW), at(9))
    assert (done.single, done.sent, done.failure) == (None, None, None)


def test_what_was_begun_is_remembered_over_two_failures() -> None:
    """The second one may have begun less."""
    first = consumer.fail(consumer.sending(PLAIN, at(9)), "", "it broke", NOW)
    again = consumer.sending(consumer.acquire(first, "one", NOW), at(5))
    assert consumer.fail(again, "", "it broke", NOW).single == at(9)


def test_failures_of_one_message_are_counted() -> None:
    """The count is dropped when another message fails, or when the message is passed."""
    once = consumer.fail(PLAIN, at(7).encode(), "too long", NOW)
    twice = consumer.fail(once, at(7).encode(), "x" * 9000, NOW + 1)
    assert twice.failure is not None
    assert (twice.failure.times, len(twice.failure.error)) == (2, limits.ERROR_CHARS_MAX)
    other = consumer.fail(twice, at(8).encode(), "too long", NOW)
    assert other.failure is not None
    assert other.failure.times == 1
    assert consumer.ack_through(twice, at(6)).failure == twice.failure
    assert consumer.ack_through(twice, at(7)).failure is None
    nobody_knows = consumer.fail(PLAIN, "", "it broke", NOW)
    assert consumer.ack_through(nobody_knows, at(1)).failure is None


def test_too_much_beyond_a_gap_is_refused() -> None:
    """A consumer stays one small item."""
    many = [at(page) for page in range(2, limits.CONSUMER_SPANS_MAX + 2)]
    full = consumer.ack_entries(PLAIN, many)
    assert len(full.acked) == limits.CONSUMER_SPANS_MAX
    with pytest.raises(InvalidConsumer, match="at most 1000 ranges"):
        consumer.ack_entries(full, [at(5000)])


def test_T35_forward_is_acknowledged() -> None:
    """Later acknowledgements are kept; the worker has to take the lease again."""
    working = replace(consumer.acquire(PLAIN, "one", NOW), acked=(Span(3, 0, 0), Span(8, 1, 1)))
    marked = consumer.move(working, at(5))
    assert (marked.position, marked.acked) == (at(5), (Span(8, 1, 1),))
    assert (marked.owner, marked.fence) == ("", 2)
    with pytest.raises(NothingDone, match="is already the position"):
        consumer.move(marked, at(5))


def test_T36_back_forgets_nothing() -> None:
    """All messages after the mark are sent again, even if they were acknowledged one by one."""
    ahead = replace(PLAIN, position=at(9), acked=(Span(11, 0, 0),), sent=at(12), single=at(12))
    marked = consumer.move(ahead, at(4))
    assert (marked.position, marked.acked, marked.single) == (at(4), (), None)
    assert consumer.move(marked, None).position is None
    assert consumer.move(marked, COPY).position is COPY
