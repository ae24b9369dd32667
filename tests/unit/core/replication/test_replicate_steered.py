"""The behaviour of a relay on actions of an operator, after it fell off, and as an elected
leader."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.core.following import caught_up, names
from tests.unit.core.replication.relay_scene import (
    MASTER,
    Chain,
    Cluster,
    Node,
    chained,
    posted,
    same,
)
from tests.unit.core.scene import FEED, op
from tidings.core import limits
from tidings.core.replication.relay import RelayStatus, Wanted
from tidings.core.replication.source import FallOff, Role, Source


def test_D22_a_pause_stops_reading_and_nothing_is_lost() -> None:
    """This includes a pause during a run; a resume continues with the next page."""
    chain = chained(2)
    node = chain.node

    def pause() -> None:
        if node.relay.wanted is Wanted.RUN:
            node.act("pause")
            chain.master.post("meanwhile")

    chain.net.meanwhile = pause
    chain.run()
    requests = len(chain.net.asked)
    chain.run()
    assert len(chain.net.asked) == requests
    assert node.relay.status == "paused"
    assert len(node.pages()) == 2

    chain.net.meanwhile = lambda: None
    node.act("resume")
    chain.run()
    assert same(chain)
    assert node.relay.counts.repeated == 0


def test_D24_what_was_shut_down_starts_from_what_is_saved() -> None:
    """Nothing is requested while it is shut down."""
    chain = chained(2)
    chain.node.act("shutdown")
    chain.master.post("c")
    chain.net.asked.clear()
    chain.run()
    assert chain.net.asked == []
    chain.node.act("start")
    chain.run()
    assert chain.net.asked[0] == (MASTER, 2)
    assert same(chain)


def fallen(fall_off: FallOff) -> Chain:
    """Return a chain whose upstream trimmed pages that the copy has not read."""
    chain = chained(3, fall_off=fall_off)
    chain.master.post("a0", event="delete")
    for number in range(3, 8):
        chain.master.post(f"a{number}", f"b{number}")
    chain.master.trim(7)
    chain.run()
    return chain


def test_D15_who_waits_says_so_until_an_operator_comes() -> None:
    """Nothing is skipped."""
    chain = fallen(FallOff.WAIT)
    relay = chain.node.relay
    assert relay.condition is RelayStatus.FELL_OFF and relay.checkpoint == 3
    assert "begins with page 7" in relay.error
    assert chain.node.scene.counted["RelayFellOff"] == 1
    chain.net.asked.clear()
    chain.run()
    assert chain.net.asked == []

    chain.node.act("reset", to="everything", why="it fell off")
    chain.run()
    assert chain.node.living() == chain.master.living()


def test_D16_who_bootstraps_has_what_the_master_has() -> None:
    """The fall is counted, the floor is above the missing pages, and the log continues."""
    chain = fallen(FallOff.BOOTSTRAP)
    node, relay = chain.node, chain.node.relay
    assert relay.condition is RelayStatus.RUNNING and relay.copy is None
    assert relay.checkpoint == 9 and node.scene.log.floor(FEED) == 10
    assert relay.low_watermark == 10
    assert node.scene.counted["RelayFellOff"] == 1
    assert node.living() == chain.master.living()

    chain.master.post("more")
    chain.run()
    assert node.living() == chain.master.living()
    assert [number for number, _, _ in node.pages()] == [10]


def test_D20_who_wants_the_latest_forgets_the_rest() -> None:
    """The old objects are deleted, and only later pages are copied."""
    chain = fallen(FallOff.LATEST)
    node = chain.node
    assert node.relay.checkpoint == 9 and node.living() == {}
    assert node.scene.counted["RelayFellOff"] == 1
    chain.master.post("next")
    chain.run()
    assert list(node.living()) == ["video/next"]


def test_a_reader_that_fell_off_with_its_feed_is_told_everything() -> None:
    """It gets the changes and deletions since the time of its cursor, then the log after the
    copy."""
    chain = chained(3)
    node = chain.node
    page = node.scene.reader.at(FEED, 3)
    assert page is not None
    chain.master.post("a0", event="delete")
    chain.master.post_each(*"uvwxyz")
    chain.master.trim(9)
    chain.run()

    events = names(caught_up(node.scene, page.end.encode()))
    assert {"delete a0", *(f"insert {name}" for name in "uvwxyz")} <= set(events)


def test_D41_roles_can_be_configured() -> None:
    """Without a coordinator a leader reads the master, and a follower its leader."""
    chain = posted("a")
    address = "https://follower.example/feeds/main"
    follower = Node(chain.net, address, Source(MASTER, role=Role.FOLLOWER, leader=chain.node.url))
    chain.run()
    follower.run()
    assert follower.pages() == chain.master.pages()
    assert (follower.relay.role, follower.relay.upstream) == (Role.FOLLOWER, chain.node.url)
    assert follower.relay.master == MASTER


def test_D40_a_follower_that_becomes_leader_goes_on_where_it_stands() -> None:
    """When it becomes a follower again it continues too: same log, no page twice, no page requested
    again.
    """
    cluster = Cluster(2)
    one, two = cluster.nodes
    cluster.master.post_each(*"abc")
    one.run()
    cluster.time.ms = one.relay.upstream_read_ms
    two.run()
    assert one.relay.role is Role.LEADER

    cluster.time.ms += limits.LEADER_LEASE_MS
    cluster.master.post("d")
    two.run()
    assert two.relay.role is Role.LEADER
    assert two.pages() == cluster.master.pages()
    assert two.relay.counts.repeated == 0
    cluster.time.ms = two.relay.upstream_read_ms
    cluster.master.post("e")
    one.run()
    assert (two.url, 3) in cluster.net.asked
    assert one.pages() == cluster.master.pages()
    assert one.relay.counts.repeated == 0
    assert one.scene.counted["RelayRoleChanges"] == one.relay.transitions > 0


def test_members_that_read_each_other_do_not_stand_still() -> None:
    """This may happen during an election, and is no configured cycle."""
    cluster = Cluster(2)
    one, two = cluster.nodes
    one.run()
    cluster.time.ms += limits.LEADER_LEASE_MS
    two.run()
    two.note(via=(one.relay.id, two.relay.id))
    cluster.time.ms = two.relay.upstream_read_ms
    one.run()
    assert not one.relay.is_blocked
    one.run()
    assert one.relay.role is Role.LEADER


def test_a_paused_leader_keeps_its_lease() -> None:
    """It reads nothing while it is paused; one that is shut down releases the lease."""
    cluster = Cluster(1)
    node = cluster.nodes[0]
    node.run()
    node.act("pause")
    cluster.net.asked.clear()
    renewed: list[int] = []

    def look(ms: int) -> None:
        renewed.append(len(cluster.leaders()))
        cluster.time.ms += ms

    relayer = node.relayer()
    replace(relayer, runtime=replace(relayer.runtime, sleep=look)).run(FEED)
    assert cluster.net.asked == [] and set(renewed[1:]) == {1}
    node.act("shutdown")
    node.run()
    assert cluster.leaders() == []


def test_D35_operations_are_counted_as_received() -> None:
    """What `/status` calls events received are operations that were copied."""
    chain = chained(3)
    assert chain.node.scene.log.log_counter(FEED).operations == 6
    chain.master.scene.post(op("c"))
    chain.master.scene.project()
    chain.run()
    assert chain.node.scene.log.log_counter(FEED).operations == 7


def test_whom_the_old_upstream_came_through_is_forgotten() -> None:
    """The chain is dropped before the new upstream is read, as those feeds may copy this one from
    now on.
    """
    chain = chained(2, length=2)
    node = chain.nodes[1]
    through = node.relay.via
    assert len(through) == 2
    node.source = Source(MASTER)
    chain.net.down.add(MASTER)
    node.run()
    assert list(node.relay.via) == [node.relay.id]
    assert node.relay.upstream == MASTER
