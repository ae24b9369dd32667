"""What alarms look at, of feeds that are chained."""

from __future__ import annotations

import pytest
from tidings.core.errors import BrokenRelay
from tidings.core.replication.replica import RELAY, Condition, Relay, Wanted

from tests.core.replication.relay_scene import Chain, chained
from tests.core.scene import FEED
from tests.fakes import MemoryRelays


class Unreadable(MemoryRelays):
    """What is stored was spoilt by somebody."""

    def relay(self, feed: str) -> Relay:
        raise BrokenRelay(feed, "not JSON")


def test_each_chained_feed_is_rung_and_told() -> None:
    """Also while nothing runs: what is counted is in the document."""
    chain = chained(1)
    node = chain.node
    node.scene.counted.clear()
    chain.time.ms += 60_000

    node.watch.run(FEED)
    assert node.scene.waker.woken[-1] == (FEED, RELAY)
    assert node.scene.counted["RelayLag"] == 0
    assert 60 <= node.scene.counted["RelayUpstreamAge"] <= 70
    assert 60 <= node.scene.counted["RelayMasterAge"] <= 70
    assert node.scene.counted["RelaysStanding"] == 0


def test_D15_one_that_stands_still_is_counted_each_minute() -> None:
    """Its alarm stays until an operator acts."""
    node = Chain().node
    node.note(condition=Condition.FELL_OFF, upstream_head=9, checkpoint=4)

    for _ in range(2):
        node.watch.run(FEED)
    assert node.scene.counted["RelaysStanding"] == 2
    assert node.scene.counted["RelayLag"] == 10


def test_D37_the_master_and_the_upstream_are_told_apart() -> None:
    """A leader that does not reach the master is heard all the same."""
    node = Chain().node
    now = node.scene.now_ms
    node.note(upstream_read_ms=now - 1_000, master_read_ms=now - 500_000)

    node.watch.run(FEED)
    assert node.scene.counted["RelayUpstreamAge"] == 1
    assert node.scene.counted["RelayMasterAge"] == 500


def test_D32_a_broken_document_is_counted_and_nobody_else_suffers() -> None:
    """It is rung too: its run fails, which another alarm sees."""
    node = Chain().node
    node.relays = Unreadable(node.scene.log)

    node.watch.run(FEED)
    assert node.scene.counted["RelaysStanding"] == 1
    assert node.scene.waker.woken == [(FEED, RELAY)]
    with pytest.raises(BrokenRelay):
        node.run()
    assert node.pages() == []


def test_D32_a_broken_document_is_told_among_the_others() -> None:
    """By itself it is an error."""
    node = Chain().node
    node.relays = Unreadable(node.scene.log)

    main, other = (node.control.listed(feed) for feed in ("main", "other"))
    assert (main["status"], other["status"]) == ("broken", "master")
    assert "cannot be read: not JSON" in main["error"]
    with pytest.raises(BrokenRelay):
        node.control.document(FEED)


def test_what_was_stopped_on_purpose_rings_no_alarm() -> None:
    """Nor does one that never ran, nor a feed that is local."""
    chain = Chain()
    node = chain.node
    node.watch.run(FEED)
    node.note(wanted=Wanted.PAUSE, condition=Condition.CYCLE, upstream_head=9)
    node.watch.run(FEED)
    assert not node.scene.counted
    chain.master.watch.run(FEED)
    assert chain.master.scene.waker.woken == []
