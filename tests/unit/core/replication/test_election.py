"""Which copy of a cluster reads the master, and which copy the others read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.fakes import MemoryCoordinator, MemoryLog, MemoryRelays
from tests.fakes.runtime import runtime_of
from tests.unit.core.replication.relay_scene import LOST, MASTER
from tests.unit.core.scene import FEED, NOW, line, page
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.replication.election import (
    Assignment,
    Elector,
    LeaderLease,
    Member,
    leader_of,
    previous_assignment,
    static_assignment,
)
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
from tidings.core.replication.source import Role, Source
from tidings.core.replication.wire import UpstreamStatus


class Candidates:
    """Members of a cluster who take turns, on one clock."""

    def __init__(self, size: int, leaders: int = 1) -> None:
        self.now, self.counted = NOW, Counter[str]()
        self.set_back_ms = 0
        self.coordinator = MemoryCoordinator()
        self.relays = [Relay(FEED)] * size
        self.electors = [self.elector(number, leaders) for number in range(size)]

    def elector(self, number: int, leaders: int = 1) -> Elector:
        source = Source(
            MASTER, role=Role.ELECTED, address=address(number), cluster="c", leaders=leaders
        )
        return Elector(
            feed=FEED,
            source=source,
            coordinator=self.coordinator,
            runtime=runtime_of(
                lambda: self.now, steady=lambda: self.now + self.set_back_ms, count=self.count
            ),
        )

    def count(self, metric: str, value: int) -> None:
        self.counted[metric] += value

    def turn(self, number: int) -> Assignment:
        """Store the decision in the document, as the relay does."""
        made = self.electors[number].assignment(self.relays[number])
        self.relays[number] = replace(
            self.relays[number], role=made.role, upstream=made.url, term=made.term
        )
        return made

    def turns(self, *numbers: int) -> list[Assignment]:
        """Let a second pass, then run each."""
        self.now += limits.LEADER_LEASE_RENEW_MS
        return [self.turn(number) for number in numbers]


def address(number: int) -> str:
    return f"https://n{number}.example/feeds/main"


@pytest.mark.parametrize("leaders", [1, 2, 3])
def test_D38_as_many_lead_as_there_are_leases(leaders: int) -> None:
    """The leaders are the copies that came first; each other copy reads one of them."""
    cluster = Candidates(5, leaders)
    for _ in range(10):
        turns = cluster.turns(*range(5))
        assert [turn.role for turn in turns].count(Role.LEADER) == leaders
    assert {turn.url for turn in turns[:leaders]} == {MASTER}
    assert {turn.url for turn in turns[leaders:]} <= {address(number) for number in range(leaders)}
    assert {turn.term for turn in turns[:leaders]} == {1}


def test_D39_when_the_leader_dies_another_leads_within_five_seconds() -> None:
    """No operator has to act; the term increases by one."""
    cluster = Candidates(3)
    cluster.turns(0, 1, 2)
    died = cluster.now
    turns = cluster.turns(1, 2)
    while all(turn.role is Role.FOLLOWER for turn in turns):
        turns = cluster.turns(1, 2)

    assert cluster.now - died <= limits.LEADER_LEASE_MS + limits.LEADER_LEASE_RENEW_MS
    assert [turn.term for turn in turns if turn.role is Role.LEADER] == [2]
    assert [turn.url for turn in turns if turn.role is Role.FOLLOWER] == [address(1)]


def test_a_leader_that_comes_back_follows() -> None:
    """Another copy holds its lease, and keeps it."""
    cluster = Candidates(2)
    cluster.turns(0, 1)
    for _ in range(5):
        cluster.turns(1)
    assert cluster.turns(0, 1) == [
        Assignment(Role.FOLLOWER, address(1)),
        Assignment(Role.LEADER, MASTER, 2),
    ]


def test_D41_who_loses_the_coordinator_keeps_its_role() -> None:
    """Leader or follower, it reads on whom it read; it is counted."""
    cluster = Candidates(2)
    before = cluster.turns(0, 1)
    for elector in cluster.electors:
        elector.coordinator = LOST
    for _ in range(20):
        assert cluster.turns(0, 1) == before
    assert cluster.counted["CoordinatorLost"] == 40
    for number in range(2):
        cluster.electors[number] = replace(cluster.electors[number])
        cluster.electors[number]._last = None
    assert cluster.turns(0, 1) == before


def test_D41_roles_are_configured_without_a_coordinator() -> None:
    """No coordinator is asked."""
    leader = Source(MASTER)
    follower = Source(MASTER, role=Role.FOLLOWER, leader=address(0))
    assert static_assignment(leader) == Assignment(Role.LEADER, MASTER)
    assert static_assignment(follower) == Assignment(Role.FOLLOWER, address(0))
    elector = Elector(feed=FEED, source=follower, coordinator=LOST, runtime=runtime_of(lambda: NOW))
    assert elector.assignment(Relay(FEED)) == Assignment(Role.FOLLOWER, address(0))
    elector.leave()


def test_who_never_knew_a_coordinator_leads() -> None:
    """It copies as if it were alone, which is safe, and better than not to copy."""
    source = Source(MASTER, role=Role.ELECTED, address=address(0), cluster="c")
    elector = Elector(feed=FEED, source=source, coordinator=None, runtime=runtime_of(lambda: NOW))
    assert elector.assignment(Relay(FEED)) == Assignment(Role.LEADER, MASTER)
    followed = Relay(FEED, role=Role.FOLLOWER, upstream=address(3))
    assert previous_assignment(source, followed) == Assignment(Role.FOLLOWER, address(3))


def test_a_clock_that_is_set_back_delays_no_election() -> None:
    """The coordinator is asked as often as before, and the member announces itself."""
    cluster = Candidates(2)
    cluster.turns(0, 1)
    cluster.now -= 2 * 3_600_000
    cluster.set_back_ms += 2 * 3_600_000
    for _ in range(limits.MEMBER_MS // limits.LEADER_LEASE_RENEW_MS):
        roles = [turn.role for turn in cluster.turns(0, 1)]

    assert roles == [Role.LEADER, Role.FOLLOWER]
    (lease,) = cluster.coordinator.leases("c")
    assert lease.is_held(cluster.now)
    assert all(member.is_alive(cluster.now) for member in cluster.coordinator.members("c"))


def test_a_member_whose_clock_was_ahead_is_not_alive_for_ever() -> None:
    """It counts as gone until it announces itself again; clocks differ by seconds."""
    member = Member("c", address(0), FEED, Role.FOLLOWER, 0, heard_ms=NOW)
    assert member.is_alive(NOW + limits.MEMBER_MS - 1) and member.is_alive(NOW - 1_000)
    assert not member.is_alive(NOW + limits.MEMBER_MS)
    assert not member.is_alive(NOW - 24 * 3_600_000)


def test_a_leader_that_cannot_read_the_master_gives_its_lease_up() -> None:
    """It does so if another copy can try, and does not take the lease again at once."""
    cluster = Candidates(2)
    cluster.turns(0, 1)
    cluster.relays[0] = replace(cluster.relays[0], failures=limits.LEADER_LEASE_FAILURES)
    assert cluster.turns(0)[0].role is Role.FOLLOWER
    assert cluster.turns(0, 1) == [
        Assignment(Role.FOLLOWER, ""),
        Assignment(Role.LEADER, MASTER, 2),
    ]
    assert cluster.turns(0)[0].url == address(1)

    cluster.now += limits.LEADER_LEASE_MS
    assert cluster.turns(0) == [Assignment(Role.FOLLOWER, "")]
    cluster.now += limits.LEADER_LEASE_REST_MS
    assert cluster.turns(0)[0].role is Role.LEADER


def test_a_member_that_is_alone_keeps_its_lease() -> None:
    """No other copy would do better; a copy without a recent heartbeat does not count."""
    cluster = Candidates(2)
    cluster.turns(0, 1)
    cluster.relays[0] = replace(cluster.relays[0], failures=99)
    cluster.electors[0]._pause_until_ms = 0
    for _ in range(limits.MEMBER_MS // limits.LEADER_LEASE_RENEW_MS + 2):
        cluster.now += limits.LEADER_LEASE_RENEW_MS
        cluster.relays[0] = replace(cluster.relays[0], failures=0)
        cluster.turn(0)
    cluster.relays[0] = replace(cluster.relays[0], failures=99)
    assert cluster.turns(0)[0].role is Role.LEADER


def test_the_coordinator_is_asked_once_a_second() -> None:
    """This holds however often the relay runs."""
    cluster = Candidates(1)
    cluster.turn(0)
    first = list(cluster.coordinator.leases("c"))
    cluster.now += limits.LEADER_LEASE_RENEW_MS - 1
    cluster.turn(0)
    assert list(cluster.coordinator.leases("c")) == first
    cluster.now += 1
    cluster.turn(0)
    assert cluster.coordinator.leases("c")[0].until_ms == cluster.now + limits.LEADER_LEASE_MS


def test_a_lease_that_another_member_took_is_lost() -> None:
    """A turn that was long in coming: the other one's time counts."""
    cluster = Candidates(2)
    cluster.turns(0, 1)
    cluster.now += limits.LEADER_LEASE_MS
    assert cluster.turn(1).role is Role.LEADER
    cluster.now += limits.LEADER_LEASE_RENEW_MS
    assert cluster.turn(0) == Assignment(Role.FOLLOWER, address(1))


def test_who_leaves_is_followed_at_once() -> None:
    """A lease that was released need not expire."""
    cluster = Candidates(2)
    cluster.turns(0, 1)
    cluster.electors[0].leave()
    assert cluster.turns(1)[0] == Assignment(Role.LEADER, MASTER, 2)
    cluster.electors[0].coordinator = LOST
    cluster.electors[0].leave()
    assert cluster.counted["CoordinatorLost"] == 1


def test_members_are_told_with_their_roles() -> None:
    """When it changes, and every ten seconds."""
    cluster = Candidates(2)
    cluster.relays[1] = replace(cluster.relays[1], checkpoint=7)
    for _ in range(25):
        cluster.turns(0, 1)
    members = {each.address: each for each in cluster.coordinator.members("c")}
    assert members[address(0)].role is Role.LEADER
    assert (members[address(1)].role, members[address(1)].checkpoint) == (Role.FOLLOWER, 7)
    assert all(cluster.now - each.heard_ms < limits.MEMBER_MS // 3 for each in members.values())


def test_fewer_leaders_than_before() -> None:
    """Leases above the number expire."""
    cluster = Candidates(3, leaders=2)
    cluster.turns(0, 1, 2)
    cluster.electors = [cluster.elector(number, 1) for number in range(3)]
    turns = cluster.turns(0, 1, 2)
    assert [turn.role for turn in turns] == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]


def test_followers_are_spread_over_the_leaders() -> None:
    """Each reads the same one as long as leaders stay."""
    leases = [LeaderLease("c", number, address(number), 1, NOW + 1) for number in range(3)]
    chosen = Counter(leader_of(leases, f"https://m{each}.example", NOW) for each in range(300))
    assert set(chosen) == {address(number) for number in range(3)}
    assert min(chosen.values()) > 60
    assert leader_of(leases, address(0), NOW) != address(0)
    assert leader_of(leases, "x", NOW + 1) == ""
    given_up = [replace(lease, address="") for lease in leases]
    assert leader_of(given_up, "x", NOW) == "" and not any(lease.is_held(NOW) for lease in given_up)


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
