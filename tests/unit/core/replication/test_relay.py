"""Test the relay's document and the lock of one run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryLog, MemoryRelays
from tests.unit.core.scene import FEED, NOW, line, page
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.replication.relay import (
    Copy,
    Relay,
    RelayLock,
    RelayStatus,
    Wanted,
    backoff_ms,
    clear_failure,
    record_failure,
    restart,
)
from tidings.core.replication.wire import UpstreamStatus


def test_D13_delays_grow_up_to_a_minute_and_never_end() -> None:
    """They double from half a second; even after a thousand failures there is an attempt each
    minute."""
    delays = [backoff_ms(failures) for failures in range(1, 12)]

    assert delays[:4] == [500, 1_000, 2_000, 4_000]
    assert delays == sorted(delays) and delays[-1] == 60_000
    assert backoff_ms(10_000) == 60_000


def test_D13_a_success_begins_anew() -> None:
    """The next failure waits as the first did."""
    relay = Relay("main")
    for _ in range(9):
        relay = record_failure(relay, RelayStatus.RETRYING, "it broke", now_ms=NOW)
    assert (relay.failures, relay.attempt_ms, relay.error) == (9, NOW + 60_000, "it broke")

    well = clear_failure(relay)
    assert (well.failures, well.attempt_ms, well.error) == (0, 0, "")
    assert record_failure(well, RelayStatus.RETRYING, "", now_ms=NOW).attempt_ms == NOW + 500


def test_an_error_is_kept_short() -> None:
    """Another server's answer may be long."""
    relay = record_failure(Relay("main"), RelayStatus.REFUSED, "x" * 10_000, now_ms=NOW)
    assert len(relay.error) == limits.ERROR_CHARS_MAX


def test_D4_a_checkpoint_is_the_end_of_a_page() -> None:
    """Requests ask for the pages strictly after it."""
    relay = Relay("main", checkpoint=7, seconds=5)
    assert relay.place == Place(7, PAGE_END, 5)


@pytest.mark.parametrize(
    ("condition", "stands"),
    [(each, each.value in ("fell-off", "other-log", "cycle")) for each in RelayStatus],
)
def test_what_only_an_operator_gets_going(condition: RelayStatus, stands: bool) -> None:
    """All other conditions end without an operator."""
    assert Relay("main", condition=condition).is_blocked is stands


def test_D23_a_status_is_what_its_operator_wanted_else_how_it_goes() -> None:
    """The status is one word."""
    relay = Relay("main", condition=RelayStatus.RETRYING)
    assert relay.status == "retrying"
    assert replace(relay, wanted=Wanted.PAUSE).status == "paused"
    assert replace(relay, wanted=Wanted.SHUTDOWN).status == "shutdown"
    assert replace(relay, condition=RelayStatus.RUNNING).status == "running"


def test_a_start_forgets_what_stopped_it_and_not_where_it_stands() -> None:
    """A relay that was stopped during a copy resumes the copy."""
    stopped = Relay("main", condition=RelayStatus.CYCLE, failures=3, error="it broke", checkpoint=7)

    assert restart(stopped) == replace(stopped, condition=RelayStatus.RUNNING, failures=0, error="")
    assert restart(replace(stopped, checkpoint=0)).condition is RelayStatus.NEW
    assert restart(replace(stopped, copy=Copy())).condition is RelayStatus.COPYING


def test_a_copy_knows_whether_it_has_begun_and_ended() -> None:
    """This works within a bucket, too."""
    assert not Copy().begun
    assert Copy(after="video/x").begun
    assert Copy(bucket=1).begun and not Copy(bucket=limits.BUCKETS - 1).copied
    assert Copy(bucket=limits.BUCKETS).copied


URL = "https://one.example/feeds/main"
STATUS = UpstreamStatus(floor=1, head=9, state=8, master="", via=("a",), master_read_ms=NOW - 5)


class Holding:
    """A run that holds the relay."""

    def __init__(self) -> None:
        self.now, self.log = NOW, MemoryLog()
        self.store = MemoryRelays(self.log)
        self.lock = RelayLock(self.store, lambda: self.now, "one", Relay(FEED, id="r"))
        assert self.lock.save(self.lock.relay)

    @property
    def stored(self) -> Relay:
        return self.store.relay(FEED)


@pytest.fixture
def holding() -> Holding:
    return Holding()


def test_what_is_saved_is_what_is_known(holding: Holding) -> None:
    """It is stored with the next version, its owner, and the time until which it is held."""
    assert holding.lock.save(replace(holding.lock.relay, error="x"))
    stored, until_ms = holding.stored, NOW + limits.RELAY_LEASE_MS
    assert stored == holding.lock.relay
    assert (stored.version, stored.owner, stored.lease_until_ms) == (2, "one", until_ms)
    assert stored.is_held(until_ms - 1) and not stored.is_held(until_ms)
    assert not replace(stored, owner="").is_held(NOW)
    assert holding.lock.refresh()


def test_who_was_overtaken_knows_so(holding: Holding) -> None:
    """Nothing was written; it looks again and finds who has it now."""
    taken = replace(holding.stored, owner="two")
    assert holding.store.write(holding.stored, taken)
    assert not holding.lock.append(replace(holding.lock.relay, checkpoint=1), [page(1, line())])
    assert holding.log.head(FEED) == 0
    assert not holding.lock.refresh()
    assert holding.lock.relay == holding.stored


def test_an_operator_is_heard_where_time_has_passed(holding: Holding) -> None:
    """Its word is in the document; the relay stays ours."""
    assert holding.store.write(holding.stored, replace(holding.stored, why="a test"))
    assert holding.lock.refresh() and holding.lock.relay.why == ""
    holding.lock.mark_stale()
    assert holding.lock.refresh() and holding.lock.relay.why == "a test"


def test_what_was_seen_is_stored_with_the_next_write(holding: Holding) -> None:
    """Repeated pages are included, and counted once."""
    lock = holding.lock
    lock.observe(STATUS, URL)
    lock.repeated += 3
    assert lock.has_unsaved_changes
    assert holding.stored.upstream_read_ms == 0
    for _ in range(2):
        lock.save(lock.relay)
    stored = holding.stored
    assert (stored.upstream_head, stored.via, stored.master) == (9, ("a", "r"), URL)
    assert stored.counts.repeated == 3
    assert not lock.has_unsaved_changes


def test_D37_the_master_is_read_when_it_is_the_upstream(holding: Holding) -> None:
    """Otherwise the master's own time counts; the time never decreases, and is never in the
    future."""
    lock = holding.lock
    for status, expected in [
        (replace(STATUS, master="m"), NOW - 5),
        (STATUS, NOW),
        (replace(STATUS, master="m"), NOW),
        (replace(STATUS, master="m", master_read_ms=NOW + 99), NOW),
    ]:
        lock.observe(status, URL)
        lock.save(lock.relay)
        assert (holding.stored.master_read_ms, holding.stored.upstream_read_ms) == (expected, NOW)


def test_a_quiet_hold_is_kept_now_and_then(holding: Holding) -> None:
    """Each write costs a unit."""
    for _ in range(30):
        holding.now += 1_000
        holding.lock.renew()
    assert holding.stored.version == 4
    assert holding.stored.lease_until_ms > holding.now


def test_who_lets_go_leaves_it_to_anybody(holding: Holding) -> None:
    """The document keeps the observed values."""
    holding.lock.observe(STATUS, URL)
    holding.lock.release()
    assert not holding.stored.is_held(NOW)
    assert holding.stored.upstream_head == 9


def test_after_a_write_that_nobody_answered_for_it_looks(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have happened."""
    write = holding.store.write

    def lost(before: Relay, after: Relay) -> bool:
        write(before, after)
        raise Unavailable("no answer")

    monkeypatch.setattr(holding.store, "write", lost)
    with pytest.raises(Unavailable):
        holding.lock.save(replace(holding.lock.relay, error="x"))
    assert holding.lock.refresh() and holding.lock.relay.error == "x"
