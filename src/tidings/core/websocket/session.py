"""A table of the actions that a WebSocket client may request in each state.

The table is data, so that tests can iterate over it.
"""

from __future__ import annotations

from enum import Enum

from tidings.core.errors import OutOfTurn


class State(Enum):
    OPEN = "open"  # the connection has no subscription
    CATCHING_UP = "catching-up"  # a replay sends the events after the client's cursor
    JOINING = "joining"  # the connection is at the frontier, and push has not accepted it yet
    LIVE = "live"  # the push follower serves the connection
    LEAVING = "leaving"  # the client unsubscribed, but the replay or push may still send events


class Act(Enum):
    """An action that a client may request."""

    SUBSCRIBE = "subscribe"
    RESUME = "resume"
    UNSUBSCRIBE = "unsubscribe"
    PING = "ping"
    KEEP_ALIVE = "keepalive"  # the server sends no answer


class Event(Enum):
    """A step of the server. Only the function that serves a connection may make such a step."""

    REACHED_FRONTIER = "reached-frontier"  # the replay has sent all events
    JOINED = "taken-up"  # the push follower has made the connection live
    MOVED = "moved"  # a lane of push has released the connection, and another lane must accept it
    RELEASED = "released"  # the replay or the push follower has stopped sending events


TRANSITIONS: dict[State, dict[Act | Event, State]] = {
    State.OPEN: {
        Act.SUBSCRIBE: State.CATCHING_UP,
        Act.RESUME: State.CATCHING_UP,
        Act.UNSUBSCRIBE: State.OPEN,
        Act.PING: State.OPEN,
        Act.KEEP_ALIVE: State.OPEN,
    },
    State.CATCHING_UP: {
        Act.UNSUBSCRIBE: State.LEAVING,
        Act.PING: State.CATCHING_UP,
        Act.KEEP_ALIVE: State.CATCHING_UP,
        Event.REACHED_FRONTIER: State.JOINING,
    },
    State.JOINING: {
        Act.UNSUBSCRIBE: State.LEAVING,
        Act.PING: State.JOINING,
        Act.KEEP_ALIVE: State.JOINING,
        Event.JOINED: State.LIVE,
    },
    State.LIVE: {
        Act.UNSUBSCRIBE: State.LEAVING,
        Act.PING: State.LIVE,
        Act.KEEP_ALIVE: State.LIVE,
        Event.MOVED: State.JOINING,
    },
    State.LEAVING: {
        Act.PING: State.LEAVING,
        Act.KEEP_ALIVE: State.LEAVING,
        Event.RELEASED: State.OPEN,
    },
}


def after(state: State, what: Act | Event) -> State:
    """Return the state that follows *state* after the action or event.

    Raises:
        OutOfTurn: the table has no such step.
    """
    try:
        return TRANSITIONS[state][what]
    except KeyError:
        acts = (step.value for step in TRANSITIONS[state] if isinstance(step, Act))
        allowed = ", ".join(sorted(acts))
        raise OutOfTurn(
            f"not possible while {state.value}; possible: {allowed}",
            field="action",
            value=what.value,
        ) from None
