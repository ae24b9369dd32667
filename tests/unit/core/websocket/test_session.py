"""The session table: which messages a client may send in which state, and their effects."""

from __future__ import annotations

import itertools

import pytest

from tidings.core.errors import OutOfTurn
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import TRANSITIONS, Act, Event, State, after

STEPS: list[Act | Event] = [*Act, *Event]


@pytest.mark.parametrize(("state", "what"), list(itertools.product(State, STEPS)))
def test_every_pair_is_a_transition_or_out_of_turn(state: State, what: Act | Event) -> None:
    """A refusal lists the possible messages in the client's words."""
    if what in TRANSITIONS[state]:
        assert after(state, what) is TRANSITIONS[state][what]
        return
    with pytest.raises(OutOfTurn) as refused:
        after(state, what)
    possible = ", ".join(sorted(act.value for act in Act if act in TRANSITIONS[state]))
    assert refused.value.rule == f"not possible while {state.value}; possible: {possible}"
    assert refused.value.value == what.value


def test_the_whole_table() -> None:
    """The table is that of the protocol."""
    drawn: dict[tuple[State, Act | Event], State] = {
        (State.OPEN, Act.SUBSCRIBE): State.CATCHING_UP,
        (State.OPEN, Act.RESUME): State.CATCHING_UP,
        (State.OPEN, Act.UNSUBSCRIBE): State.OPEN,
        (State.CATCHING_UP, Act.UNSUBSCRIBE): State.LEAVING,
        (State.CATCHING_UP, Event.REACHED_FRONTIER): State.JOINING,
        (State.JOINING, Act.UNSUBSCRIBE): State.LEAVING,
        (State.JOINING, Event.JOINED): State.LIVE,
        (State.LIVE, Act.UNSUBSCRIBE): State.LEAVING,
        (State.LIVE, Event.MOVED): State.JOINING,
        (State.LEAVING, Event.RELEASED): State.OPEN,
        **{(state, act): state for state in State for act in (Act.PING, Act.KEEP_ALIVE)},
    }
    table = {
        (state, what): then for state, steps in TRANSITIONS.items() for what, then in steps.items()
    }
    assert table == drawn


def test_each_change_of_a_connection_is_the_next_version() -> None:
    """It leaves the rest as it was."""
    new = (
        Connection("c", 5, feed="main", since=3).with_fields(state=State.LIVE).with_fields(since=4)
    )

    assert new == Connection("c", 5, State.LIVE, feed="main", since=4, version=2)
