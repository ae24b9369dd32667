"""Test that a chained feed copies its upstream page by page."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.unit.core.following import caught_up, names
from tests.unit.core.replication.relay_scene import (
    MASTER,
    SUMS,
    Chain,
    Cluster,
    Node,
    chained,
    posted,
    same,
)
from tests.unit.core.scene import FEED, NOW, PAGE_MS, line, op, page
from tidings.core import limits
from tidings.core.errors import BrokenBatch, Unavailable, UpstreamRefused
from tidings.core.model.filters import Filter
from tidings.core.model.pages import Page
from tidings.core.replication.relay import RelayStatus, Wanted
from tidings.core.replication.replicate import fresh, group_pages, pack_page
from tidings.core.replication.source import FallOff, Mod, Role, Selection, Source


def test_D2_a_chained_feed_has_the_same_pages_under_the_same_ids() -> None:
    """Numbers, times and bytes, a filler too; so any cursor of the one is good at the other."""
    chain = Chain()
    chain.master.post("a", data={"x": "\u00e4"}, tags=["t"])
    chain.master.scene.log.take(FEED)
    chain.master.post("b")
    chain.time.ms += limits.HOLE_GRACE_MS
    chain.master.scene.project()
    chain.run()

    assert [number for number, _, _ in chain.node.pages()] == [1, 2, 3]
    assert same(chain)
    cursor = chain.master.scene.reader.at(FEED, 1)
    assert cursor is not None
    for node in (chain.master, chain.node):
        progress = node.scene.catch_up.start(FEED, cursor.end)
        assert progress.page == 1 and not progress.copying


def test_a_chain_of_three_is_as_the_master() -> None:
    """Each reads the one before it, and passes on the chain of feeds that the pages came
    through."""
    chain = chained(length=3)

    assert same(chain)
    assert [len(node.relay.via) for node in chain.nodes] == [1, 2, 3]
    assert {node.relay.master for node in chain.nodes} == {MASTER}


def test_D3_without_a_checkpoint_everything_is_read() -> None:
    """It starts with the first page."""
    chain = chained(5)
    assert chain.net.asked[0] == (MASTER, 0)
    assert chain.node.relay.low_watermark == 1
    assert same(chain)


def test_D4_with_a_checkpoint_what_follows_is_read() -> None:
    """No local page is requested again."""
    chain = chained(5)
    chain.net.asked.clear()
    chain.master.post("c")
    chain.run()

    assert {page for _, page in chain.net.asked} - {SUMS} == {5, 6}
    assert chain.node.relay.counts.repeated == 0
    assert same(chain)


def test_D9_the_low_watermark_is_explicit() -> None:
    """It is the first page that was ever local; after a copy of the state it is the page after the
    copy.
    """
    chain = chained(4)
    assert chain.node.relay.low_watermark == 1
    late = posted(*"abcd")
    late.master.trim(4)
    late.run()
    assert late.node.relay.low_watermark == 5
    assert late.node.living() == late.master.living()


def test_a_feed_that_is_chained_to_itself_is_a_cycle() -> None:
    """It stops and reports it; nothing is copied in a circle."""
    chain = Chain(2)
    one, two = chain.nodes
    one.source = Source(two.url)
    for _ in range(3):
        one.run()
        two.run()

    assert RelayStatus.CYCLE in {one.relay.condition, two.relay.condition}
    assert one.pages() == two.pages() == []
    assert "this feed is one of them" in one.relay.error + two.relay.error


def test_a_chain_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a chain is a mistake: its last feed would lag far."""
    monkeypatch.setattr(limits, "VIA_MAX", 2)
    chain = chained(length=3)
    assert chain.nodes[2].relay.condition is RelayStatus.CYCLE
    assert "too long" in chain.nodes[2].relay.error
    assert chain.nodes[1].pages() == chain.master.pages()


@pytest.mark.parametrize("wrong", ["types", "share"])
def test_D43_what_is_left_out_is_counted_and_leaves_no_hole(wrong: str) -> None:
    """Page numbers are the upstream's; D14: a page of which nothing is kept is there, empty."""
    selection = {
        "types": Selection(Filter(types=frozenset({"video"}))),
        "share": Selection(share=Mod(2, frozenset({0}))),
    }[wrong]
    chain = Chain(selection=selection)
    for number in range(6):
        kind = "video" if number % 2 else "user"
        chain.master.post(f"a{number}", f"b{number}", type=kind)
    chain.run()

    relay, pages = chain.node.relay, chain.node.pages()
    assert [number for number, _, _ in pages] == [1, 2, 3, 4, 5, 6]
    assert relay.counts.pages == 6
    assert relay.counts.operations + relay.counts.filtered == 12
    assert relay.counts.operations == sum(len(text.splitlines()) for _, text, _ in pages)
    assert 0 < relay.counts.filtered < 12
    assert set(chain.node.living().items()) < set(chain.master.living().items())


def test_D12_an_upstream_that_is_down_is_asked_until_it_is_there() -> None:
    """Then everything is copied."""
    chain = posted(*"abc")
    chain.net.down.add(MASTER)
    for _ in range(3):
        chain.run()
    relay = chain.node.relay
    assert relay.condition is RelayStatus.RETRYING and relay.failures > 10
    assert chain.node.scene.counted["RelayRetries"] == relay.failures

    chain.net.down.clear()
    chain.run()
    assert same(chain)
    assert chain.node.relay.failures == 0
    assert chain.node.relay.status == "running" and chain.node.relay.error == ""


def test_D13_delays_between_attempts_stay_below_a_minute() -> None:
    """They grow, and start again after a success."""
    chain = Chain()
    times: list[int] = []
    chain.net.meanwhile = lambda: times.append(chain.time.ms)
    chain.net.down.add(MASTER)
    for _ in range(4):
        chain.run()

    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[:4] == pytest.approx([500, 1_000, 2_000, 4_000], abs=20)
    assert max(gaps) <= 61_100
    assert len(gaps) > 15


def test_D27_a_quiet_upstream_is_asked_anew_all_the_time() -> None:
    """Each reply after a wait is a request of its own, so that a stale connection is noticed."""
    chain = chained(1)
    chain.net.asked.clear()
    chain.run()

    assert len(chain.net.asked) >= limits.RELAY_RUN_MS // (limits.BATCH_BLOCK_S_MAX * 1000)
    chain.master.post("late")
    chain.run()
    assert same(chain)


def test_a_clock_that_is_set_back_prolongs_no_run() -> None:
    """A run takes as long as before, and so it asks the upstream as often."""
    chain = chained(1)
    chain.net.asked.clear()
    chain.node.relayer().run(FEED)
    before = len(chain.net.asked)
    chain.net.asked.clear()
    hours = [lambda: chain.set_back(2 * 3_600_000)]
    chain.net.meanwhile = lambda: hours.pop()() if hours else None
    chain.node.relayer().run(FEED)

    assert 0 < len(chain.net.asked) <= before + 1


@pytest.mark.parametrize(
    ("broken", "condition"),
    [
        (UpstreamRefused("wrong password"), RelayStatus.REFUSED),
        (BrokenBatch("no NDJSON"), RelayStatus.RETRYING),
        (Unavailable("503"), RelayStatus.RETRYING),
    ],
)
def test_what_an_upstream_cannot_answer_is_told_and_tried_again(
    broken: Exception, condition: RelayStatus
) -> None:
    """The condition includes the error's text, and ends by itself."""
    chain = chained(2)
    chain.net.broken = broken
    chain.run()
    assert chain.node.relay.condition is condition
    assert str(broken) in chain.node.relay.error

    chain.net.broken = None
    chain.master.post("more")
    chain.time.ms += limits.RELAY_BACKOFF_MS_MAX
    chain.run()
    assert same(chain)


def test_D25_a_page_above_the_size_of_a_reply_is_asked_for_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The upstream says how large the page is."""
    monkeypatch.setattr(limits, "BATCH_BYTES_MIN", 2_000)
    chain = posted("small")
    chain.master.post(*(f"large-{number}" for number in range(60)))
    chain.master.post("small again")
    chain.run()
    assert same(chain)


def test_a_page_above_any_reply_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be transferred, and no later page is stored instead of it."""
    monkeypatch.setattr(limits, "BATCH_BYTES_MIN", 1_000)
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 2_000)
    chain = Chain()
    chain.master.post(*(f"large-{number}" for number in range(60)))
    chain.master.post("behind")
    chain.run()
    assert chain.node.pages() == []
    assert "the next page has" in chain.node.relay.error


def test_a_run_that_fails_releases_the_state_and_the_relay() -> None:
    """A mistake of ours in the middle of a copy: the next run and the follower need not wait."""
    chain = posted("a", "b")
    chain.master.trim(2)
    answers = iter([None, None, None, ValueError("a mistake")])

    def meanwhile() -> None:
        chain.net.broken = next(answers)

    chain.net.meanwhile = meanwhile
    with pytest.raises(ValueError, match="a mistake"):
        chain.node.relayer().run(FEED)
    assert chain.node.relay.owner == ""
    assert [each.owner for each in chain.node.scene.followers.leases(FEED)] == [""]


def test_D8_what_is_here_already_is_left_out() -> None:
    """Only pages that follow the checkpoint without a hole are stored."""
    pages = [page(number, line()) for number in (3, 4, 5)]

    assert fresh(pages, 2) == pages
    assert fresh(pages, 4) == pages[2:]
    assert fresh(pages, 9) == []


@pytest.mark.parametrize("numbers", [(4,), (3, 5), (4, 3), (3, 3)])
def test_a_gap_is_no_batch(numbers: tuple[int, ...]) -> None:
    """The pages after a gap are not stored either."""
    with pytest.raises(BrokenBatch, match="instead of page"):
        fresh([page(number, line()) for number in numbers], 2)


def test_D2_a_page_is_kept_with_its_bytes_time_and_slots() -> None:
    """A large page is packed again, and unpacks to the same entries."""
    small, filler = page(7, line("a"), line("b"), at_ms=NOW - 5), page(8)
    lines = [line(str(number), data="x" * 40) for number in range(200)]
    large = replace(page(9), body="\n".join(lines))
    some = large.only([(3, lines[3]), (150, lines[150])])

    for each in (small, filler, large, some):
        kept = pack_page(each, "r", now_ms=NOW, page_ms=PAGE_MS)
        assert (kept.number, kept.text, kept.at_ms) == (each.number, each.text, each.at_ms)
        assert list(kept.entries()) == list(each.entries())
        assert kept.append_id == "r"
    assert isinstance(pack_page(large, "r", now_ms=NOW, page_ms=PAGE_MS).body, bytes)


def test_a_page_expires_after_the_floor_has_passed_it() -> None:
    """It expires like any page; an old one stays a day, within which retention passes or extends
    it."""
    young = pack_page(page(1, line(), at_ms=NOW), "r", now_ms=NOW + 5, page_ms=PAGE_MS)
    old = pack_page(page(1, line(), at_ms=NOW - 3 * PAGE_MS), "r", now_ms=NOW, page_ms=PAGE_MS)

    assert young.expires_ms == NOW + PAGE_MS
    assert old.expires_ms == NOW + limits.TTL_SLACK_MS


def test_a_page_with_too_many_entries_is_refused() -> None:
    """An upstream that is not Tidings could send it."""
    many = Page(1, "\n".join(["{}"] * (limits.REQUEST_OPERATIONS_MAX + 1)), "", NOW)
    with pytest.raises(BrokenBatch, match="holds 1001 entries"):
        pack_page(many, "r", now_ms=NOW, page_ms=PAGE_MS)


def test_a_write_holds_so_many_pages_and_bytes() -> None:
    """A transaction of 100 items and 4 MB holds them, with the relay and the head."""
    small = [page(number, line()) for number in range(1, 201)]
    large = [Page(number, b"x" * limits.PAGE_BYTES_MAX, "", NOW) for number in range(1, 21)]
    huge = [Page(1, b"x" * (limits.RELAY_WRITE_BYTES + 1), "", NOW)]

    assert [len(group) for group in group_pages(small)] == [90, 90, 20]
    assert [len(group) for group in group_pages(large)] == [9, 9, 2]
    assert [each for group in group_pages(small) for each in group] == small
    assert [len(group) for group in group_pages(huge)] == [1]
    assert list(group_pages([])) == []


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
