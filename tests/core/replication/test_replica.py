"""The document of a relay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.replication.replica import (
    Condition,
    Copy,
    Relay,
    Wanted,
    backoff_ms,
    failed,
    restarted,
    succeeded,
)

from tests.core.scene import NOW


def test_D13_delays_grow_up_to_a_minute_and_never_end() -> None:
    """Doubled from half a second on; the thousandth attempt comes a minute after the last."""
    delays = [backoff_ms(failures) for failures in range(1, 12)]

    assert delays[:4] == [500, 1_000, 2_000, 4_000]
    assert delays == sorted(delays) and delays[-1] == 60_000
    assert backoff_ms(10_000) == 60_000


def test_D13_a_success_begins_anew() -> None:
    """The next failure waits as the first did."""
    relay = Relay("main")
    for _ in range(9):
        relay = failed(relay, Condition.RETRYING, "it broke", now_ms=NOW)
    assert (relay.failures, relay.attempt_ms, relay.error) == (9, NOW + 60_000, "it broke")

    well = succeeded(relay)
    assert (well.failures, well.attempt_ms, well.error) == (0, 0, "")
    assert failed(well, Condition.RETRYING, "", now_ms=NOW).attempt_ms == NOW + 500


def test_an_error_is_kept_short() -> None:
    """A foreign answer may be long."""
    relay = failed(Relay("main"), Condition.REFUSED, "x" * 10_000, now_ms=NOW)
    assert len(relay.error) == limits.ERROR_CHARS_MAX


def test_D4_a_checkpoint_is_the_end_of_a_page() -> None:
    """What is asked for is strictly behind it."""
    relay = Relay("main", checkpoint=7, seconds=5)
    assert relay.place == Place(7, PAGE_END, 5)


@pytest.mark.parametrize(
    ("condition", "stands"),
    [(each, each.value in ("fell-off", "other-log", "cycle")) for each in Condition],
)
def test_what_only_an_operator_gets_going(condition: Condition, stands: bool) -> None:
    """Everything else goes on by itself."""
    assert Relay("main", condition=condition).stands is stands


def test_D23_a_status_is_what_its_operator_wanted_else_how_it_goes() -> None:
    """In one word."""
    relay = Relay("main", condition=Condition.RETRYING)
    assert relay.status == "retrying"
    assert replace(relay, wanted=Wanted.PAUSE).status == "paused"
    assert replace(relay, wanted=Wanted.SHUTDOWN).status == "shutdown"
    assert replace(relay, condition=Condition.RUNNING).status == "running"


def test_a_start_forgets_what_stopped_it_and_not_where_it_stands() -> None:
    """In the middle of a copy it goes on copying."""
    stopped = Relay("main", condition=Condition.CYCLE, failures=3, error="it broke", checkpoint=7)

    assert restarted(stopped) == replace(stopped, condition=Condition.RUNNING, failures=0, error="")
    assert restarted(replace(stopped, checkpoint=0)).condition is Condition.NEW
    assert restarted(replace(stopped, copy=Copy())).condition is Condition.COPYING


def test_a_copy_knows_whether_it_has_begun_and_ended() -> None:
    """Within a bucket, too."""
    assert not Copy().begun
    assert Copy(after="video/x").begun
    assert Copy(bucket=1).begun and not Copy(bucket=limits.BUCKETS - 1).copied
    assert Copy(bucket=limits.BUCKETS).copied
