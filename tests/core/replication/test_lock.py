"""One run at a time holds a relay, and what it saw is stored with its next write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.replication.lock import Hold
from tidings.core.replication.replica import Relay
from tidings.core.replication.wire import Standing

from tests.core.scene import FEED, NOW, line, page
from tests.fakes import MemoryLog, MemoryRelays

URL = "https://one.example/feeds/main"
STANDING = Standing(1, 9, 8, "", ("a",), NOW - 5)


class Holding:
    """A run that holds the relay."""

    def __init__(self) -> None:
        self.now, self.log = NOW, MemoryLog()
        self.store = MemoryRelays(self.log)
        self.hold = Hold(self.store, lambda: self.now, "one", Relay(FEED, id="r"))
        assert self.hold.save(self.hold.relay)

    @property
    def stored(self) -> Relay:
        return self.store.relay(FEED)


@pytest.fixture
def holding() -> Holding:
    return Holding()


def test_what_is_saved_is_what_is_known(holding: Holding) -> None:
    """With the next version, an owner and a time, until which it is held by somebody."""
    assert holding.hold.save(replace(holding.hold.relay, error="x"))
    stored, until_ms = holding.stored, NOW + limits.RELAY_LEASE_MS
    assert stored == holding.hold.relay
    assert (stored.version, stored.owner, stored.lease_until_ms) == (2, "one", until_ms)
    assert stored.held(until_ms - 1) and not stored.held(until_ms)
    assert not replace(stored, owner="").held(NOW)
    assert holding.hold.look()


def test_who_was_overtaken_knows_so(holding: Holding) -> None:
    """Nothing was written; it looks again and finds who has it now."""
    taken = replace(holding.stored, owner="two")
    assert holding.store.write(holding.stored, taken)
    assert not holding.hold.append(replace(holding.hold.relay, checkpoint=1), [page(1, line())])
    assert holding.log.head(FEED) == 0
    assert not holding.hold.look()
    assert holding.hold.relay == holding.stored


def test_an_operator_is_heard_where_time_has_passed(holding: Holding) -> None:
    """Its word is in the document; the relay stays ours."""
    assert holding.store.write(holding.stored, replace(holding.stored, why="a test"))
    assert holding.hold.look() and holding.hold.relay.why == ""
    holding.hold.doubt()
    assert holding.hold.look() and holding.hold.relay.why == "a test"


def test_what_was_seen_is_stored_with_the_next_write(holding: Holding) -> None:
    """Pages that came again, too; once."""
    hold = holding.hold
    hold.see(STANDING, URL)
    hold.repeated += 3
    assert hold.has_news
    assert holding.stored.upstream_read_ms == 0
    for _ in range(2):
        hold.save(hold.relay)
    stored = holding.stored
    assert (stored.upstream_head, stored.via, stored.master) == (9, ("a", "r"), URL)
    assert stored.counts.repeated == 3
    assert not hold.has_news


def test_D37_the_master_is_read_when_it_is_the_upstream(holding: Holding) -> None:
    """Else its own time counts; it never goes back, and never lies ahead."""
    hold = holding.hold
    for standing, expected in [
        (replace(STANDING, master="m"), NOW - 5),
        (STANDING, NOW),
        (replace(STANDING, master="m"), NOW),
        (replace(STANDING, master="m", master_read_ms=NOW + 99), NOW),
    ]:
        hold.see(standing, URL)
        hold.save(hold.relay)
        assert (holding.stored.master_read_ms, holding.stored.upstream_read_ms) == (expected, NOW)


def test_a_quiet_hold_is_kept_now_and_then(holding: Holding) -> None:
    """Each write costs a unit."""
    for _ in range(30):
        holding.now += 1_000
        holding.hold.keep()
    assert holding.stored.version == 4
    assert holding.stored.lease_until_ms > holding.now


def test_who_lets_go_leaves_it_to_anybody(holding: Holding) -> None:
    """With what was seen."""
    holding.hold.see(STANDING, URL)
    holding.hold.let_go()
    assert not holding.stored.held(NOW)
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
        holding.hold.save(replace(holding.hold.relay, error="x"))
    assert holding.hold.look() and holding.hold.relay.error == "x"
