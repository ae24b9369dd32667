"""Counters: the shares that a process writes for its streams, and when it writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.core import limits
from tidings.core.counters import CounterDelta, StreamCounter

NOW = 1_795_000_000_000
SOON, EVERY = limits.COUNT_SOON_MS, limits.COUNT_EVERY_MS


def test_who_comes_is_told_at_once() -> None:
    """The first client of a process has nothing to wait for."""
    audience = StreamCounter()
    assert audience.is_empty and not audience.is_due(NOW)

    audience.open()

    assert audience.is_due(NOW)
    assert audience.take_delta(NOW) == CounterDelta(connections=1, sent=0, clients=1)
    assert not audience.is_due(NOW)


def test_a_thousand_who_come_together_are_told_together() -> None:
    """A share is due at most once a second, however many clients connect and disconnect."""
    audience = StreamCounter()
    audience.open()
    audience.take_delta(NOW)
    for _ in range(999):
        audience.open()

    assert not audience.is_due(NOW + SOON - 1)
    assert audience.is_due(NOW + SOON)
    assert audience.take_delta(NOW + SOON) == CounterDelta(connections=999, sent=0, clients=1000)


def test_events_wait_for_the_next_time() -> None:
    """Any number of sent events alone causes no write."""
    audience = StreamCounter()
    audience.open()
    audience.take_delta(NOW)
    audience.send(100_000)

    assert not audience.is_due(NOW + EVERY - 1)
    assert audience.is_due(NOW + EVERY)
    assert audience.take_delta(NOW + EVERY) == CounterDelta(connections=0, sent=100_000, clients=1)


def test_who_stays_is_told_again() -> None:
    """This happens even if nothing is sent: a count that is not renewed expires."""
    audience = StreamCounter()
    audience.open()
    audience.take_delta(NOW)

    assert audience.is_due(NOW + EVERY)
    assert 2 * EVERY < limits.PRESENCE_MS <= 60_000


def test_the_last_who_leaves_is_told() -> None:
    """Then there is nothing more to do."""
    audience = StreamCounter()
    audience.open()
    audience.open()
    audience.take_delta(NOW)
    audience.close()
    assert not audience.has_left
    audience.close()
    assert audience.has_left

    assert audience.take_delta(NOW) == CounterDelta(connections=0, sent=0, clients=0)
    assert audience.is_empty and not audience.has_left


@given(st.lists(st.sampled_from(["open", "close", "send", "write", "fail"])))
def test_nothing_is_lost_and_nothing_told_twice(moves: list[str]) -> None:
    """With any failures the written shares add up to the true counts."""
    audience, there, opened, sent = StreamCounter(), 0, 0, 0
    written = CounterDelta(0, 0, 0)
    for move in [*moves, "write"]:
        if move == "open":
            audience.open()
            there, opened = there + 1, opened + 1
        elif move == "close" and there:
            audience.close()
            there -= 1
        elif move == "send":
            audience.send(3)
            sent += 3
        elif move == "write":
            delta = audience.take_delta(NOW)
            written = CounterDelta(
                written.connections + delta.connections, written.sent + delta.sent, delta.clients
            )
        elif move == "fail":
            audience.give_back(audience.take_delta(NOW))

    assert written == CounterDelta(opened, sent, there)


def test_what_was_given_back_is_due_again() -> None:
    """It is due soon, even if all clients have disconnected since."""
    audience = StreamCounter()
    audience.open()
    audience.close()
    audience.give_back(audience.take_delta(NOW))

    assert not audience.is_empty
    assert audience.is_due(NOW + SOON)
