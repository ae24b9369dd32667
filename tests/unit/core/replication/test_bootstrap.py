"""Test the copy of an upstream's state and the comparison with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.fakes import MemoryFollowers
from tests.unit.core.replication.relay_scene import (
    MASTER,
    ROWS,
    SUMS,
    Chain,
    Net,
    Node,
    chained,
    posted,
)
from tests.unit.core.scene import FEED
from tidings.core import limits
from tidings.core.errors import LeaseLost, Unavailable, UpstreamRefused
from tidings.core.followers.follower import STATE
from tidings.core.replication.bootstrap import Bootstrapper, Comparison
from tidings.core.replication.relay import Copy, Relay, RelayStatus
from tidings.core.replication.source import ALL, Mod, Selection
from tidings.core.state.rows import Difference, Kind, Row, bucket_of
from tidings.core.state.sums import PageSums

RELAY = Relay(FEED, id="r")


def holding(node: Node) -> Bootstrapper:
    """Return a bootstrapper that holds the lease of the state."""
    made = node.bootstrapper()
    assert made.lease.acquire(FEED)
    return made


def copied(chain: Chain, relay: Relay = RELAY, copy: Copy = Copy()) -> Copy:  # noqa: B008
    """Run all steps of a copy, each once."""
    made = holding(chain.node)
    while not copy.copied:
        copy, _ = made.step(relay, copy, MASTER, ALL)
    made.lease.release(FEED)
    return copy


def objects(*names: str) -> set[str]:
    return {f"video/{name}" for name in names}


def test_rows_come_as_they_are_upstream() -> None:
    """Living and deleted ones, with their places and times."""
    chain = posted(*(f"o{number}" for number in range(300)))
    chain.master.post("o7", "o8", event="delete")
    copy = copied(chain)

    assert copy.page == 301
    for bucket in range(limits.BUCKETS):
        theirs = chain.master.scene.state.read(FEED, bucket)
        assert chain.node.scene.state.read(FEED, bucket) == theirs


def test_what_the_upstream_has_not_got_is_deleted_now() -> None:
    """It is deleted with the current time, so that a client that resumes by time gets the
    delete."""
    chain = Chain()
    chain.node.post("ours", "both", "gone")
    chain.node.post("gone", event="delete")
    before = chain.node.scene.state.find(FEED, ["video/gone"])
    chain.time.ms += 50_000
    for _ in range(5):
        chain.master.post("both", "theirs")
    copied(chain)

    assert set(chain.node.living()) == objects("both", "theirs")
    (row,) = chain.node.scene.state.find(FEED, ["video/ours"])
    assert row.deleted and row.at_ms >= chain.time.ms - 1_000
    assert row.expires_ms > row.at_ms and row.page == 5
    assert chain.node.scene.state.find(FEED, ["video/gone"]) == before


def test_what_is_as_it_should_be_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that is repeated only reads."""
    chain = posted(*(f"o{number}" for number in range(20)))
    copied(chain)
    written: list[int] = []
    for name in ("write", "repair"):
        monkeypatch.setattr(
            chain.node.scene.state, name, lambda feed, rows: written.append(len(rows))
        )
    copied(chain)
    assert written == []


def test_a_row_goes_back_where_the_upstream_says_so() -> None:
    """With another log or selection than before its rows may have earlier positions."""
    chain = Chain()
    for _ in range(5):
        chain.node.post("x", "y")
    chain.node.post("y", event="delete")
    chain.master.post_each("x", "y", *"abcde")
    copied(chain)

    keys = ["video/x", "video/y"]
    rows = chain.node.scene.state.find(FEED, keys)
    assert rows == chain.master.scene.state.find(FEED, keys)
    assert [row.page for row in rows] == [1, 2]


def test_a_row_that_changed_meanwhile_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late write of a crashed holder may land between the comparison and the write."""
    chain = posted("x", "x", "x")
    chain.node.post("x")
    state, late = chain.node.scene.state, chain.node.scene.state.find(FEED, ["video/x"])
    repair = state.repair

    def after_the_late_one(feed: str, changes: Sequence[Difference]) -> list[bool]:
        state.write(feed, [row._replace(page=2) for row in late])
        return repair(feed, changes)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(state, "repair", after_the_late_one)
        with pytest.raises(Unavailable, match="another process changed the state"):
            copied(chain)
    chain.node.scene.followers = MemoryFollowers()  # the run that failed holds the lease
    copied(chain)
    assert [row.page for row in state.find(FEED, ["video/x"])] == [3]


@pytest.mark.parametrize("stop", [0, 1, 30, 63, 64])
def test_a_copy_goes_on_where_it_was(stop: int) -> None:
    """It resumes with the next bucket; the bucket that was begun is copied again."""
    chain = posted(*(f"o{number}" for number in range(100)))
    copy, made = Copy(), holding(chain.node)
    for _ in range(stop):
        copy, _ = made.step(RELAY, copy, MASTER, ALL)
    made.lease.release(FEED)
    chain.master.post("o5", event="delete")
    done = copied(chain, copy=copy)

    assert done.page == (100 if stop else 101)
    missing = set(chain.node.living()) ^ set(chain.master.living())
    assert missing <= objects("o5")


def test_a_bucket_of_many_replies_goes_on_within(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is one reply, and ends with the last key of it."""
    monkeypatch.setattr(limits, "BUCKETS", 1)
    monkeypatch.setattr(limits, "BATCH_BYTES", 300)
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 400)
    chain = posted(*(f"o{number:02d}" for number in range(20)))
    chain.node.post(*(f"o{number:02d}x" for number in range(20)))
    made = holding(chain.node)
    copy, keys = Copy(), []
    while not copy.copied:
        copy, _ = made.step(replace(RELAY), copy, MASTER, ALL)
        keys.append(copy.after)
    assert keys == [*sorted(keys[:-1]), ""] and len(keys) > 5
    assert chain.node.living() == chain.master.living()


def test_the_log_goes_on_behind_what_every_row_holds() -> None:
    """The smallest page of all replies, as when another upstream is read half way."""
    chain = posted(*"abc", length=2)
    chain.nodes[0].run()
    behind = chain.nodes[0].url
    chain.master.post("d")
    made = holding(chain.nodes[1])
    first, _ = made.step(RELAY, Copy(), MASTER, ALL)
    second, _ = made.step(RELAY, first, behind, ALL)
    third, _ = made.step(RELAY, second, MASTER, ALL)
    assert (first.page, second.page, third.page) == (4, 3, 3)


def test_who_stands_at_our_last_page_must_notice() -> None:
    """The copy therefore ends above it, and waits until the upstream has reached that page."""
    chain = posted(*"abc")
    here = replace(RELAY, checkpoint=3)
    made = holding(chain.node)
    with pytest.raises(Unavailable, match="is at page 3; the copy waits until it is after page 3"):
        made.step(here, Copy(), MASTER, ALL)
    chain.master.post("d")
    assert made.step(here, Copy(), MASTER, ALL)[0].page == 4


def test_nothing_is_copied_where_the_latest_is_wanted() -> None:
    """All local objects are deleted; the upstream is asked once, for its end."""
    chain = posted(*"abc")
    chain.node.post("ours")
    copy = copied(chain, copy=Copy(empty=True))
    assert copy.page == 3 and chain.node.living() == {}
    assert len(chain.net.asked) == 1
    chain.net.asked.clear()
    assert copied(chain, copy=Copy(page=40, seconds=7, empty=True)).page == 40
    assert chain.net.asked == []


def test_the_floor_and_the_state_move_behind_the_copy() -> None:
    """The state follower continues from there; it does not run during the copy."""
    node = posted(*"abc").node
    made = holding(node)
    assert node.scene.project() == 0
    copy = Copy(page=3, seconds=5, bucket=limits.BUCKETS)
    for _ in range(2):  # done again, it is the same
        done = made.finish(replace(RELAY, copy=copy), copy)
        assert (done.checkpoint, done.seconds, done.low_watermark, done.copy) == (3, 5, 4, None)
    made.lease.release(FEED)
    assert node.scene.log.floor(FEED) == 4
    assert node.scene.followers.checkpoints(FEED)[STATE] == 3
    assert node.scene.waker.woken[-1] == (FEED, STATE)


def test_while_the_state_is_followed_the_copy_waits() -> None:
    """One writes it at a time."""
    node = Chain().node
    lease = node.scene.followers.take(FEED, STATE, owner="x", now_ms=node.scene.now_ms)
    assert lease is not None
    made = node.bootstrapper()
    assert not made.lease.acquire(FEED)
    assert node.scene.waker.woken == []
    node.scene.followers.release(lease)
    assert made.lease.acquire(FEED) and made.lease.acquire(FEED)


def test_who_was_frozen_writes_nothing() -> None:
    """Its lease is another's: the rows that it holds are old."""
    chain = posted(*(f"o{number}" for number in range(100)))
    made = holding(chain.node)

    def freeze() -> None:
        chain.time.ms += limits.LEASE_MS
        chain.net.meanwhile = lambda: None
        chain.node.scene.project()

    chain.net.meanwhile = freeze
    with pytest.raises(LeaseLost):
        for bucket in range(limits.BUCKETS):
            made.step(RELAY, Copy(bucket=bucket), MASTER, ALL)
    assert chain.node.living() == {}


def row_of(node: Node, key: str) -> Row:
    (row,) = node.scene.state.find(FEED, [key])
    return row


def put(node: Node, row: Row, instead: Row | None) -> None:
    """Replace a row in the state only, without the feed's follower."""
    swap = Difference(Kind.ALTERED, row.bucket, row.key, row, instead)
    assert node.scene.state.repair(FEED, [swap]) == [True]


def compared(chain: Chain, times: int = 1) -> None:
    """Let the next comparisons be due, and run each."""
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


def test_20_6_a_clock_that_is_set_back_delays_no_comparison() -> None:
    """The stored time of the last one is later than now; the next one is not hours away."""
    chain = chained(3)
    compared(chain)
    chain.set_back(2 * 3_600_000)
    compared(chain)
    assert chain.node.relay.counted == 2


def test_20_6_a_row_that_was_lost_is_mended_by_its_bucket() -> None:
    """It is repaired when its bucket's turn comes; only that bucket's rows are read, and it is
    counted.
    """
    chain = chained(3)
    put(chain.node, row_of(chain.node, "video/a1"), None)
    chain.net.asked.clear()
    compared(chain, limits.BUCKETS)
    assert chain.node.living() == chain.master.living()
    assert chain.node.scene.counted["RelayBucketsMended"] == chain.node.relay.mended == 1
    assert [page for _, page in chain.net.asked].count(ROWS) == 1
    assert chain.node.relay.condition is RelayStatus.RUNNING


def test_20_6_a_row_of_another_place_and_one_too_many_are_mended() -> None:
    """An object that the upstream does not have is deleted."""
    chain = chained(3)
    old = row_of(chain.node, "video/a1")
    put(chain.node, old, old._replace(page=1, slot=5))
    key = "video/extra"
    extra = old._replace(key=key, line=old.line.replace("a1", "extra"))
    assert bucket_of(key) != bucket_of("video/a1")
    chain.node.scene.state.write(FEED, [extra])
    forget_sums(chain.node)
    compared(chain, 2)
    assert chain.node.living() == chain.master.living()
    assert row_of(chain.node, key).deleted


def forget_sums(node: Node) -> None:
    """Make the follower count the checksums again from the rows of the state."""
    (lease,) = (each for each in node.scene.followers.leases(FEED) if each.name == "state")
    taken = node.scene.followers.take(FEED, "state", owner="test", now_ms=node.scene.now_ms)
    node.scene.followers.release(replace(taken, note=b""), force=True)
    assert lease.checkpoint == taken.checkpoint


def test_20_6_pages_wait_while_the_states_are_brought_to_one_page() -> None:
    """A feed that is always busy is compared too; the pages that waited are copied after that."""
    chain = chained(2)
    scene = chain.node.scene

    def busy() -> None:
        """Something is posted before each request, which takes a second."""
        chain.master.post(f"more{chain.time.ms}")
        chain.time.ms += 1_000

    def pause(ms: int) -> None:
        """Let our own state catch up with the log during the pause."""
        scene.project()
        scene.wait(ms)

    chain.net.meanwhile = busy
    chain.time.ms += limits.RELAY_COMPARE_MS
    chain.node.run(runtime=replace(chain.node.scene.runtime, sleep=pause))
    relay = chain.node.relay
    assert 2 < relay.compared_page < relay.checkpoint
    assert relay.mended == 0
    chain.net.meanwhile = lambda: None
    chain.run()
    assert chain.node.living() == chain.master.living()


def test_20_6_a_state_that_does_not_come_is_not_waited_for_long() -> None:
    """The relay continues; a later comparison covers it."""
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
    """An upstream whose release has no checksums, or that refuses to send them."""

    def sums(self, url: str) -> PageSums:
        raise UpstreamRefused(f"{url} refused with status 404")


def test_20_6_an_upstream_without_sums_is_copied_as_before() -> None:
    """This does not count as a failure of the relay."""
    chain = chained(2)
    net = Older(chain.time, chain.net.places)
    chain.master.post("later")
    chain.time.ms += limits.RELAY_COMPARE_MS
    before = chain.node.relay.compared_page
    chain.node.run(upstream=net)
    relay = chain.node.relay
    assert (relay.checkpoint, relay.compared_page, relay.failures) == (3, before, 0)


def test_20_6_a_clock_that_is_set_ahead_repeats_no_attempt() -> None:
    """An upstream that has no checksums is asked again after ten minutes, not after each step."""
    chain = chained(2)
    node = chain.node
    made = replace(node.bootstrapper(), upstream=Older(chain.time, chain.net.places))
    comparison = Comparison(bootstrapper=made, sums=node.scene.sum_reader, count=node.scene.count)
    chain.time.ms += limits.RELAY_COMPARE_MS
    comparison.begin(node.relay)
    comparison.step(node.relay, MASTER)
    chain.set_back(-2 * 3_600_000)
    comparison.begin(node.relay)
    assert comparison.waits == 0
    chain.time.ms += limits.RELAY_COMPARE_MS
    comparison.begin(node.relay)
    assert comparison.waits == limits.RELAY_COMPARE_WAITS


def test_20_6_a_copy_of_a_part_is_not_compared() -> None:
    """Its checksums cover only the part."""
    chain = chained(2, selection=Selection(share=Mod(2, frozenset({0}))))
    chain.net.asked.clear()
    compared(chain)
    assert chain.node.relay.compared_page == 0
    assert SUMS not in [page for _, page in chain.net.asked]
