"""A chained feed compares its state with its upstream's by their sums, and mends what differs."""

from __future__ import annotations

from dataclasses import replace

from tidings.core import limits
from tidings.core.errors import UpstreamRefused
from tidings.core.replication.replica import Condition
from tidings.core.replication.selection import Mod, Selection
from tidings.core.state.differences import Difference, Kind
from tidings.core.state.rows import Row, bucket_of
from tidings.core.state.sum_reader import ToldSums

from tests.core.replication.relay_scene import ROWS, SUMS, Chain, Net, Node, chained
from tests.core.scene import FEED


def row_of(node: Node, key: str) -> Row:
    (row,) = node.scene.state.find(FEED, [key])
    return row


def put(node: Node, row: Row, instead: Row | None) -> None:
    """In the state alone, past everybody who keeps it."""
    swap = Difference(Kind.ALTERED, row.bucket, row.key, row, instead)
    assert node.scene.state.repair(FEED, [swap]) == [True]


def compared(chain: Chain, times: int = 1) -> None:
    """The next comparisons are due, and a run makes each."""
    for _ in range(times):
        chain.time.ms += limits.RELAY_COMPARE_MS
        chain.run()


def test_20_6_a_copy_that_is_right_is_compared_and_left_alone() -> None:
    """It costs the upstream one request, and nothing is written to the state."""
    chain = chained(3)
    before = chain.node.scene.rows()
    compared(chain)
    relay = chain.node.relay
    assert (relay.compared_page, relay.mended) == (3, 0)
    assert relay.compared_ms > chain.time.ms - limits.RELAY_RUN_MS
    assert chain.node.scene.rows() == before


def test_20_6_a_row_that_was_lost_is_mended_by_its_bucket() -> None:
    """Once its turn has come; that bucket's rows alone are asked for, and the alarm is told."""
    chain = chained(3)
    put(chain.node, row_of(chain.node, "video/a1"), None)
    chain.net.asked.clear()
    compared(chain, limits.BUCKETS)
    assert chain.node.living() == chain.master.living()
    assert chain.node.scene.counted["RelayBucketsMended"] == chain.node.relay.mended == 1
    assert [page for _, page in chain.net.asked].count(ROWS) == 1
    assert chain.node.relay.condition is Condition.RUNNING


def test_20_6_a_row_of_another_place_and_one_too_many_are_mended() -> None:
    """What the upstream has not got is deleted."""
    chain = chained(3)
    old = row_of(chain.node, "video/a1")
    put(chain.node, old, replace(old, page=1, slot=5))
    key = "video/extra"
    extra = replace(old, key=key, line=old.line.replace("a1", "extra"))
    assert bucket_of(key) != bucket_of("video/a1")
    chain.node.scene.state.write(FEED, [extra])
    forget_sums(chain.node)
    compared(chain, 2)
    assert chain.node.living() == chain.master.living()
    assert row_of(chain.node, key).deleted


def forget_sums(node: Node) -> None:
    """They are counted again, of what the state holds."""
    (lease,) = (each for each in node.scene.followers.standings(FEED) if each.name == "state")
    taken = node.scene.followers.take(FEED, "state", owner="test", now_ms=node.scene.now_ms)
    node.scene.followers.release(replace(taken, note=b""), force=True)
    assert lease.checkpoint == taken.checkpoint


def test_20_6_pages_wait_while_the_states_are_brought_to_one_page() -> None:
    """A feed that never rests is compared too; what waited comes behind."""
    chain = chained(2)
    scene = chain.node.scene

    def busy() -> None:
        """Something is posted before each request, which takes a second."""
        chain.master.post(f"more{chain.time.ms}")
        chain.time.ms += 1_000

    def pause(ms: int) -> None:
        """Meanwhile our own state comes to where the log is."""
        scene.project()
        scene.wait(ms)

    chain.net.meanwhile = busy
    chain.time.ms += limits.RELAY_COMPARE_MS
    chain.node.run(sleep=pause)
    relay = chain.node.relay
    assert 2 < relay.compared_page < relay.checkpoint
    assert relay.mended == 0
    chain.net.meanwhile = lambda: None
    chain.run()
    assert chain.node.living() == chain.master.living()


def test_20_6_a_state_that_does_not_come_is_not_waited_for_long() -> None:
    """The feed goes on; a later comparison does it."""
    chain = chained(2)
    chain.master.post("late")
    chain.time.ms += limits.RELAY_COMPARE_MS
    before = chain.node.relay.compared_page
    chain.node.relayer().run(FEED)  # without the follower `state`
    chain.master.post("later")
    chain.node.relayer().run(FEED)
    assert (chain.node.relay.checkpoint, chain.node.relay.compared_page) == (4, before)
    chain.run()
    compared(chain)
    assert chain.node.relay.compared_page == 4


class Older(Net):
    """An upstream of a release without sums, or one that does not tell them to us."""

    def sums(self, url: str) -> ToldSums:
        raise UpstreamRefused(f"{url} refused with status 404")


def test_20_6_an_upstream_without_sums_is_copied_as_before() -> None:
    """It is no failure of the relay."""
    chain = chained(2)
    net = Older(chain.time, chain.net.places)
    chain.master.post("later")
    chain.time.ms += limits.RELAY_COMPARE_MS
    before = chain.node.relay.compared_page
    chain.node.run(upstream=net)
    relay = chain.node.relay
    assert (relay.checkpoint, relay.compared_page, relay.failures) == (3, before, 0)


def test_20_6_a_copy_of_a_part_is_not_compared() -> None:
    """Its sums are of what it has."""
    chain = chained(2, selection=Selection(share=Mod(2, frozenset({0}))))
    chain.net.asked.clear()
    compared(chain)
    assert chain.node.relay.compared_page == 0
    assert SUMS not in [page for _, page in chain.net.asked]
