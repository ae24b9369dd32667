"""Test the operator's actions on chained feeds, and their monitor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryRelays
from tests.unit.core.replication.relay_scene import LOST, MASTER, Chain, Cluster, chained, posted
from tests.unit.core.scene import FEED
from tidings.core import limits
from tidings.core.errors import BrokenRelay, InvalidRelay, NotChained, NothingDone, UnknownFeed
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.timestamps import from_ms
from tidings.core.replication.admin import Action, reset
from tidings.core.replication.relay import RELAY, Copy, Relay, RelayStatus, Wanted
from tidings.core.replication.source import FallOff

WHY = {"why": "a test"}


def place(page: int, slot: int = PAGE_END, seconds: int = 9) -> str:
    return Place(page, slot, seconds).encode()


def test_D23_a_feed_is_told_with_its_status_and_position() -> None:
    """The document has its name, its status, and its position as a cursor that is valid on any
    copy."""
    node = chained().node
    document = node.control.reporter.document(FEED)
    assert (document["feed"], document["status"], document["page"]) == (FEED, "running", 3)
    assert document["cursor"] == node.relay.place.encode()
    assert document["source"] == document["upstream"] == document["master"] == MASTER
    assert document["role"] == "leader" and document["low_watermark"] == 1


def test_D34_the_ends_of_the_log_are_told_with_their_times() -> None:
    """They are the first and last local page, or null without pages."""
    chain = chained()
    document = chain.node.control.reporter.document(FEED)
    pages = chain.master.scene.log.read(FEED, 0)
    assert document["min"]["page"] == 1 and document["max"]["page"] == 3
    assert document["min"]["time"] == from_ms(pages[0].at_ms)
    assert document["max"]["time"] == from_ms(pages[2].at_ms)
    assert document["max"]["cursor"] == pages[2].end.encode()
    assert (document["floor"], document["head"]) == (1, 3)
    empty = Chain().node.control.reporter.document(FEED)
    assert empty["min"] is None and empty["max"] is None and empty["status"] == "new"


def test_D36_what_was_copied_is_counted() -> None:
    """It counts pages, operations, filtered and repeated ones, and the lag."""
    chain = chained()
    relay = chain.node.relay
    chain.node.note(upstream_head=5, counts=replace(relay.counts, filtered=4, repeated=2))
    chain.time.ms = relay.page_at_ms + 90_000
    document = chain.node.control.reporter.document(FEED)
    assert (document["pages"], document["operations"]) == (3, 6)
    assert (document["filtered"], document["repeated"]) == (4, 2)
    assert (document["lag_pages"], document["lag_ms"]) == (2, 90_000)
    assert document["last_page_ms_ago"] == 90_000


def test_D37_reads_of_the_master_and_of_the_upstream_are_told_apart() -> None:
    """The times are null before the first read."""
    node = chained().node
    now = node.scene.now_ms
    node.note(upstream_read_ms=now - 7, master_read_ms=now - 70)
    document = node.control.reporter.document(FEED)
    assert (document["upstream_read_ms_ago"], document["master_read_ms_ago"]) == (7, 70)
    assert Chain().node.control.reporter.document(FEED)["master_read_ms_ago"] is None


def test_what_went_wrong_is_told() -> None:
    """The document has the error, the next attempt, and the progress of a copy."""
    node = chained().node
    node.note(failures=3, attempt_ms=5_000, error="it broke", copy=Copy(7, bucket=16))
    document = node.control.reporter.document(FEED)
    assert (document["failures"], document["error"]) == (3, "it broke")
    assert document["next_attempt"] == from_ms(5_000)
    assert document["copy"] == {"buckets_done": 16, "buckets": 64, "behind_page": 7, "empty": False}


def test_D1_local_feeds_are_told_too() -> None:
    """Both kinds live in one deployment; by name."""
    chain = chained()
    listed = [chain.node.control.reporter.summary(feed) for feed in ("main", "other")]
    roles = {each["feed"]: each["role"] for each in listed}
    assert roles == {"main": "leader", "other": "master"}
    assert chain.master.control.reporter.document(FEED)["max"]["page"] == 3
    with pytest.raises(UnknownFeed):
        chain.node.control.reporter.document("nothing")


def test_D38_the_members_of_a_cluster_are_told_with_their_roles() -> None:
    """Members that are gone are listed for some time."""
    cluster = Cluster(2)
    for node in cluster.nodes:
        node.run()
    members = cluster.nodes[0].control.reporter.document(FEED)["members"]
    assert [each["address"] for each in members] == [node.url for node in cluster.nodes]
    assert [each["gone"] for each in members] == [True, False]
    assert {each["role"] for each in members} == {"leader"}


def test_D41_without_the_coordinator_all_but_the_members_is_told() -> None:
    """The members are then unknown."""
    node = Cluster(1).nodes[0]
    node.coordinator = LOST
    assert node.control.reporter.document(FEED)["members"] is None
    assert chained().node.control.reporter.document(FEED)["members"] == []


def test_D22_pause_and_resume() -> None:
    """What changes nothing is refused."""
    node = chained().node
    assert node.act("pause") == "paused"
    with pytest.raises(NothingDone, match="is paused: there is nothing to pause"):
        node.act("pause")
    assert node.relay.wanted is Wanted.PAUSE
    assert node.act("resume") == "running"
    with pytest.raises(NothingDone):
        node.act("resume")
    assert node.scene.waker.woken[-1] == (FEED, RELAY)


def test_D24_shutdown_and_start() -> None:
    """It starts from the saved checkpoint; a resume does not undo a shutdown."""
    node = chained().node
    assert node.act("shutdown") == "shutdown"
    for action in ("shutdown", "pause", "resume"):
        with pytest.raises(NothingDone):
            node.act(action)
    assert node.act("start") == "running"
    assert node.relay.checkpoint == 3
    with pytest.raises(NothingDone):
        node.act("start")


@pytest.mark.parametrize(
    "condition", [each for each in RelayStatus if Relay("x", condition=each).is_blocked]
)
def test_what_stands_still_is_started(condition: RelayStatus) -> None:
    """It tries again what stopped it."""
    node = chained().node
    node.note(condition=condition, error="x")
    assert node.act("start") == "running"
    assert node.relay.error == ""


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"to": "latest"}, "why"),
        ({"to": "latest", "why": " "}, "why"),
        ({"to": "latest", "why": "x" * 501}, "why"),
        (WHY, "to"),
        ({"to": "now", **WHY}, "to"),
        ({"to": 7, **WHY}, "to"),
        ({"to": "0", **WHY}, "to"),
        ({"to": place(3), **WHY}, "to"),
        ({"to": place(4, slot=0), **WHY}, "to"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(fields: dict[str, object], wrong: str) -> None:
    """Nothing is written."""
    node = chained().node
    before = node.relay
    with pytest.raises(InvalidRelay) as refused:
        node.act("reset", **fields)
    assert refused.value.field == wrong
    assert node.relay == before


def test_a_local_feed_has_nothing_to_steer() -> None:
    """It is not chained."""
    chain = Chain()
    with pytest.raises(NotChained):
        chain.master.act("pause")
    with pytest.raises(UnknownFeed):
        chain.node.control.act("nothing", Action.PAUSE, {})


def test_D35_a_reset_empties_the_log_and_goes_on_behind_an_event() -> None:
    """The old pages are below the floor; the next page is the first one in the log."""
    chain = chained()
    node = chain.node
    for number in range(3, 9):
        chain.master.post(f"a{number}")
    seconds = chain.master.pages()[5][2] // 1000
    assert node.act("reset", to=place(6, seconds=seconds), why="skip them") == "copying"
    assert node.relay.why == "skip them"
    chain.run()
    assert [number for number, _, _ in node.pages()] == [7, 8, 9]
    assert node.relay.low_watermark == node.scene.log.floor(FEED) == 7
    assert set(node.living()) == {f"video/a{number}" for number in (6, 7, 8)}


@pytest.mark.parametrize(
    ("to", "offset", "page"), [(50, 10, 40), (50, 0, 50), (5, 10, 0), (10, 10, 0)]
)
def test_D10_an_empty_log_begins_some_pages_before(to: int, offset: int, page: int) -> None:
    """Never below the first."""
    fields = {"to": place(to), **WHY}
    copy = reset(Relay(FEED), 0, offset, fields).copy
    assert copy == Copy(page, 9 if page == to else 0, empty=True)


def test_D11_what_is_here_is_never_read_again() -> None:
    """A reset stays above all earlier pages."""
    copy = reset(Relay(FEED, checkpoint=45), 45, 10, {"to": place(50), **WHY}).copy
    assert copy == Copy(46, 0, empty=True)
    half = reset(Relay(FEED, checkpoint=45), 45, 0, {"to": place(50, slot=3), **WHY}).copy
    assert half == Copy(49, 0, empty=True)


def test_a_reset_heals_what_waits_for_an_operator() -> None:
    """After another log took the upstream's place, as soon as that has passed us."""
    chain = posted(*"abc", fall_off=FallOff.WAIT)
    chain.run()
    other = Chain()
    other.time.ms = chain.time.ms
    other.master.post_each(*"xyz")
    chain.net.places[MASTER] = other.master
    chain.run()
    assert chain.node.relay.condition is RelayStatus.OTHER_LOG
    chain.node.act("reset", to="everything", why="restored from a copy")
    chain.run()
    assert "after page 3" in chain.node.relay.error
    other.master.post("u")
    chain.time.ms += limits.RELAY_BACKOFF_MS_MAX
    chain.run()
    assert chain.node.living() == other.master.living()


class Unreadable(MemoryRelays):
    """A store with a broken document."""

    def relay(self, feed: str) -> Relay:
        raise BrokenRelay(feed, "not JSON")


def test_each_chained_feed_is_rung_and_told() -> None:
    """The metrics come from the document, so they are reported while nothing runs too."""
    chain = chained(1)
    node = chain.node
    node.scene.counted.clear()
    chain.time.ms += 60_000

    node.monitor.run(FEED)
    assert node.scene.waker.woken[-1] == (FEED, RELAY)
    assert node.scene.counted["RelayLag"] == 0
    assert 60 <= node.scene.counted["RelayUpstreamAge"] <= 70
    assert 60 <= node.scene.counted["RelayMasterAge"] <= 70
    assert node.scene.counted["RelaysStanding"] == 0


def test_D15_one_that_stands_still_is_counted_each_minute() -> None:
    """Its alarm stays until an operator acts."""
    node = Chain().node
    node.note(condition=RelayStatus.FELL_OFF, upstream_head=9, checkpoint=4)

    for _ in range(2):
        node.monitor.run(FEED)
    assert node.scene.counted["RelaysStanding"] == 2
    assert node.scene.counted["RelayLag"] == 10


def test_D37_the_master_and_the_upstream_are_told_apart() -> None:
    """A leader that cannot reach the master still gets answers from its upstream."""
    node = Chain().node
    now = node.scene.now_ms
    node.note(upstream_read_ms=now - 1_000, master_read_ms=now - 500_000)

    node.monitor.run(FEED)
    assert node.scene.counted["RelayUpstreamAge"] == 1
    assert node.scene.counted["RelayMasterAge"] == 500


def test_D32_a_broken_document_is_counted_and_nobody_else_suffers() -> None:
    """It is woken too: its run fails, which another alarm sees."""
    node = Chain().node
    node.relays = Unreadable(node.scene.log)

    node.monitor.run(FEED)
    assert node.scene.counted["RelaysStanding"] == 1
    assert node.scene.waker.woken == [(FEED, RELAY)]
    with pytest.raises(BrokenRelay):
        node.run()
    assert node.pages() == []


def test_D32_a_broken_document_is_told_among_the_others() -> None:
    """A request for this feed alone is an error."""
    node = Chain().node
    node.relays = Unreadable(node.scene.log)

    main, other = (node.control.reporter.summary(feed) for feed in ("main", "other"))
    assert (main["status"], other["status"]) == ("broken", "master")
    assert "cannot be read: not JSON" in main["error"]
    with pytest.raises(BrokenRelay):
        node.control.reporter.document(FEED)


def test_what_was_stopped_on_purpose_raises_no_alarm() -> None:
    """A relay that never ran causes no alarm either, nor does a local feed."""
    chain = Chain()
    node = chain.node
    node.monitor.run(FEED)
    node.note(wanted=Wanted.PAUSE, condition=RelayStatus.CYCLE, upstream_head=9)
    node.monitor.run(FEED)
    assert not node.scene.counted
    chain.master.monitor.run(FEED)
    assert chain.master.scene.waker.woken == []
