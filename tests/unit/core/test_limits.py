"""Limits: those that lean on each other."""

from __future__ import annotations

from tidings.core import limits
from tidings.core.model import cursors

SORT_KEY_BYTES = 1024  # DynamoDB
ITEM_BYTES = 400 * 1024  # DynamoDB
MESSAGE_BYTES = 128 * 1024  # API Gateway, out
_RECEIVE_TIMEOUT_S = 10  # of the function that answers a listener, see `deployment`


def test_keys_fit_a_sort_key() -> None:
    """An object's, with every character of its type escaped, and a filter's."""
    assert 3 * limits.TYPE_BYTES_MAX + 1 + limits.ID_BYTES_MAX <= SORT_KEY_BYTES
    assert len("p/") + limits.PARENT_BYTES_MAX <= SORT_KEY_BYTES


def test_a_page_is_an_item_and_an_operation_fits_a_message() -> None:
    """There is room for names."""
    assert limits.PAGE_BYTES_MAX < ITEM_BYTES
    assert limits.OPERATION_BYTES_MAX + 200 < limits.FRAME_BYTES_MAX < MESSAGE_BYTES


def test_positions_fit_their_digits() -> None:
    """A slot is never that of a replication, and a bucket is never a flag."""
    assert limits.REQUEST_OPERATIONS_MAX - 1 < cursors.PAGE_END
    assert limits.BUCKETS < 0x400000


def test_a_holder_is_dead_before_its_lease_can_be_taken() -> None:
    """It may renew the lease at the start of its run only, and Lambda kills it at the time-out."""
    assert limits.FOLLOW_RUN_MS < limits.FOLLOW_TIMEOUT_S * 1000 < limits.LEASE_MS
    assert limits.LEASE_LOOK_MS < limits.FOLLOW_TIMEOUT_S * 1000  # observers are killed there too
    assert limits.LEASE_MS < limits.LEASE_LOOK_AGAIN_MS
    assert limits.REPLAY_RUN_MS < limits.REPLAY_TIMEOUT_S * 1000


def test_a_replay_is_dead_before_another_takes_its_connection() -> None:
    """This holds by any clock: a version guards only what it saves, not what it sends."""
    dead_ms = limits.REPLAY_TIMEOUT_S * 1000 + limits.CLOCK_SKEW_MS_MAX
    answered_ms = _RECEIVE_TIMEOUT_S * 1000 + limits.CLOCK_SKEW_MS_MAX

    assert dead_ms < limits.REPLAY_LEASE_MS
    assert answered_ms < limits.REGISTERING_MS


def test_time_limits_of_the_log() -> None:
    """A claim is remembered no longer than its page; tombstones outlive the log."""
    assert limits.CLAIM_MS <= limits.RETENTION_MS_MIN + limits.TTL_SLACK_MS
    assert limits.TOMBSTONE_SLACK_MS > limits.TTL_SLACK_MS
    assert limits.HOLE_POLL_MS < limits.HOLE_GRACE_MS < limits.FOLLOW_RUN_MS
    assert limits.IDLE_CURSOR_MS < limits.RETENTION_MS_MIN
