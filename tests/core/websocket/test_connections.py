"""The values around a connection."""

from __future__ import annotations

from tidings.core.model.filters import EVERYTHING
from tidings.core.websocket.connections import Connection, Outcome
from tidings.core.websocket.session import State


def test_a_new_connection_wants_nothing_yet() -> None:
    """It is open, unsigned, in its first version."""
    new = Connection("c", 5)

    assert (new.state, new.feed, new.filter) == (State.OPEN, "", EVERYTHING)
    assert (new.progress, new.runner, new.runner_expires_ms, new.version) == ("", "", 0, 0)


def test_each_change_is_the_next_version() -> None:
    """And leaves the rest and the old one as they were."""
    old = Connection("c", 5, feed="main", since=3)
    new = old.changed(state=State.LIVE).changed(since=4)

    assert (new.state, new.since, new.feed, new.version) == (State.LIVE, 4, "main", 2)
    assert old == Connection("c", 5, feed="main", since=3)


def test_what_became_of_a_message() -> None:
    """Of those that failed only the busy one is worth another try."""
    assert {outcome.value for outcome in Outcome} == {"sent", "gone", "busy", "unknown", "refused"}
