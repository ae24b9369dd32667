"""A chained feed copies whole pages of its upstream, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tidings.core import limits
from tidings.core.cursors import START
from tidings.core.errors import BrokenPortion, Unavailable, UpstreamRefused
from tidings.core.filters import Filter
from tidings.core.pages import Page
from tidings.core.relays import RELAY, Condition, Relay, Wanted
from tidings.core.selections import Mod, Selection
from tidings.core.sources import FallOff, Role, Source

from tests.unit.relay_scene import MASTER, Chain, Cluster, Node, pass_by
from tests.unit.scene import FEED, PAGE_MS, op


class Failing:
    """The relays of a node, whose next `append` fails: before it is done, or after."""

    def __init__(self, node: Node, *, before: bool, times: int = 1) -> None:
        self.relays, self.before, self.times = node.relays, before, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.relays, name)

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        if self.times == 0:
            return self.relays.append(before, after, pages)
        self.times -= 1
        if not self.before:
            self.relays.append(before, after, pages)
        raise Unavailable("no answer")


def chained(pages: int = 3, length: int = 1, **options: Any) -> Chain:
    """A master with some pages, copied by all behind it."""
    chain = Chain(length, **options)
    for number in range(pages):
        chain.master.post(f"a{number}", f"b{number}")
    chain.run()
    return chain


def same(chain: Chain) -> bool:
    """Whether every feed has the master's log and state."""
    return all(
        node.pages() == chain.master.pages() and node.scene.rows() == chain.master.scene.rows()
        for node in chain.nodes
    )


# --- what is copied ----------------------------------------------------------------------------


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
    """Each reads the one before it; who they came through is told to the next."""
    chain = chained(length=3)

    assert same(chain)
    assert [len(node.relay.via) for node in chain.nodes] == [1, 2, 3]
    assert {node.relay.master for node in chain.nodes} == {MASTER}


def test_D3_without_a_checkpoint_everything_is_read() -> None:
    """From the first page on."""
    chain = chained(5)
    assert chain.net.asked[0] == (MASTER, 0)
    assert chain.node.relay.low_watermark == 1
    assert same(chain)


def test_D4_with_a_checkpoint_what_follows_is_read() -> None:
    """Nothing of what is here is asked for again."""
    chain = chained(5)
    chain.net.asked.clear()
    chain.master.post("c")
    chain.run()

    assert {page for _, page in chain.net.asked} == {5, 6}
    assert chain.node.relay.counts.repeated == 0
    assert same(chain)


def test_D9_the_low_watermark_is_explicit() -> None:
    """The first page that ever was here, behind a copy the one behind it."""
    chain = chained(4)
    assert chain.node.relay.low_watermark == 1
    late = Chain()
    for name in "abcd":
        late.master.post(name)
    late.master.trim(4)
    late.run()
    assert late.node.relay.low_watermark == 5
    assert late.node.living() == late.master.living()


def test_a_feed_that_is_chained_to_itself_is_a_cycle() -> None:
    """It stands still and says so; nothing is copied round and round."""
    chain = Chain(2)
    one, two = chain.nodes
    one.source = Source(two.url)
    for _ in range(3):
        one.run()
        two.run()

    assert Condition.CYCLE in {one.relay.condition, two.relay.condition}
    assert one.pages() == two.pages() == []
    assert "this one among them" in one.relay.error + two.relay.error


def test_a_chain_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake, whose end would be far behind."""
    monkeypatch.setattr(limits, "VIA_MAX", 2)
    chain = chained(length=3)
    assert chain.nodes[2].relay.condition is Condition.CYCLE
    assert "too many" in chain.nodes[2].relay.error
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


# --- when it is read ---------------------------------------------------------------------------


def test_D12_an_upstream_that_is_down_is_asked_until_it_is_there() -> None:
    """Then everything is copied."""
    chain = Chain()
    for name in "abc":
        chain.master.post(name)
    chain.net.down.add(MASTER)
    for _ in range(3):
        chain.run()
    relay = chain.node.relay
    assert relay.condition is Condition.RETRYING and relay.failures > 10
    assert chain.node.scene.counted["RelayRetries"] == relay.failures

    chain.net.down.clear()
    chain.run()
    assert same(chain)
    assert chain.node.relay.failures == 0
    assert chain.node.relay.status == "running" and chain.node.relay.error == ""


def test_D13_delays_between_attempts_stay_below_a_minute() -> None:
    """And grow; a success begins anew."""
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
    """Each reply that waited is a request of its own, so no connection goes stale unseen."""
    chain = chained(1)
    chain.net.asked.clear()
    chain.run()

    assert len(chain.net.asked) >= limits.RELAY_RUN_MS // (limits.PORTION_BLOCK_S_MAX * 1000)
    chain.master.post("late")
    chain.run()
    assert same(chain)


@pytest.mark.parametrize(
    ("broken", "condition"),
    [
        (UpstreamRefused("wrong password"), Condition.REFUSED),
        (BrokenPortion("no NDJSON"), Condition.RETRYING),
        (Unavailable("503"), Condition.RETRYING),
    ],
)
def test_what_an_upstream_cannot_answer_is_told_and_tried_again(
    broken: Exception, condition: Condition
) -> None:
    """With its words; it goes on by itself."""
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
    """The upstream tells how large it is."""
    monkeypatch.setattr(limits, "PORTION_BYTES_MIN", 2_000)
    chain = Chain()
    chain.master.post("small")
    chain.master.post(*(f"large-{number}" for number in range(60)))
    chain.master.post("small again")
    chain.run()
    assert same(chain)


def test_a_page_above_any_reply_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot come; nothing behind it is taken instead."""
    monkeypatch.setattr(limits, "PORTION_BYTES_MIN", 1_000)
    monkeypatch.setattr(limits, "PORTION_BYTES_MAX", 2_000)
    chain = Chain()
    chain.master.post(*(f"large-{number}" for number in range(60)))
    chain.master.post("behind")
    chain.run()
    assert chain.node.pages() == []
    assert "the next page has" in chain.node.relay.error


# --- one at a time, all or nothing ---------------------------------------------------------------


def test_a_second_run_leaves_the_first_one_alone() -> None:
    """While it holds the relay."""
    chain = Chain()
    chain.master.post("a")
    seen: list[int] = []
    chain.net.meanwhile = lambda: seen.append(chain.node.relayer().run(FEED))
    chain.run()
    assert set(seen) == {0}
    assert same(chain)


class Killed(BaseException):
    """The function is no more."""


def test_D5_a_run_that_is_killed_is_followed_by_another() -> None:
    """Once its time is over; pages come whole, and none twice."""
    chain = Chain()
    for name in "abc":
        chain.master.post(name)

    def kill() -> None:
        raise Killed

    chain.net.meanwhile = kill
    with pytest.raises(Killed):
        chain.run()
    chain.net.meanwhile = lambda: None
    assert chain.node.run() == 0
    pass_by(chain.time)
    assert chain.node.run() == 3
    assert same(chain)


@pytest.mark.parametrize("before", [True, False])
def test_D31_what_cannot_be_saved_is_not_here(before: bool) -> None:
    """Lost requests and lost answers: the checkpoint says which, and no page comes twice."""
    chain = Chain()
    for name in "abc":
        chain.master.post(name)
    failing = Failing(chain.node, before=before)
    copied = chain.node.run(store=failing)

    assert same(chain)
    assert chain.node.relay.counts.pages == 3
    assert copied == (3 if before else 0)


def test_D30_a_store_that_does_not_answer_is_told() -> None:
    """Never acknowledged: the run fails, nothing is here."""
    chain = Chain()
    chain.master.post("a")
    with pytest.raises(Unavailable):
        chain.node.run(store=Failing(chain.node, before=True, times=99))
    assert chain.node.pages() == []
    assert chain.node.relay.checkpoint == 0


def test_D7_readers_never_see_part_of_a_page() -> None:
    """Nor a page without those before it, at any moment of a run."""
    chain = Chain()
    for number in range(200):
        chain.master.post(f"a{number}", f"b{number}")
    whole = chain.master.pages()
    lengths: list[int] = []

    class Watched(Failing):
        def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
            assert len(pages) <= limits.PORTION_PAGES_MAX
            done = self.relays.append(before, after, pages)
            found = chain.node.pages()
            assert found == whole[: len(found)]
            assert len(found) == chain.node.relay.checkpoint == chain.node.scene.log.head(FEED)
            lengths.append(len(found))
            return done

    chain.node.run(store=Watched(chain.node, before=True, times=0))
    assert lengths[-1] == 200 and len(lengths) > 2


def test_D8_pages_that_come_again_are_counted_and_ignored() -> None:
    """As from an upstream that does not honour where it is asked from."""
    chain = chained(3)
    chain.master.post("new")
    portion = chain.master.portioner.pages(FEED, START, Selection(), 10**6)

    class Repeating:
        def pages(self, *args: Any, **named: Any) -> Any:
            chain.time.ms += 20_000
            return portion

    chain.node.run(upstream=Repeating())
    assert same(chain)
    relay = chain.node.relay
    assert relay.counts.pages == 4
    assert relay.counts.repeated >= 3


def test_D8_a_gap_is_never_written() -> None:
    """What comes next must come next."""
    chain = chained(3)
    for name in "xyz":
        chain.master.post(name)
    portion = chain.master.portioner.pages(FEED, chain.node.relay.place, Selection(), 10**6)

    class Skipping:
        def pages(self, *args: Any, **named: Any) -> Any:
            return replace(portion, pages=portion.pages[1:])

    chain.node.run(upstream=Skipping())
    assert len(chain.node.pages()) == 3
    assert "page 4 is next" in chain.node.relay.error


def test_D28_what_readers_did_not_manage_is_theirs() -> None:
    """The copy goes on, and who failed reads the same whole page again from its checkpoint."""
    chain = chained(2)
    chain.master.post("c")
    chain.node.relayer().run(FEED)
    assert chain.node.scene.followers.checkpoints(FEED)["state"] == 2
    chain.node.scene.project()
    assert same(chain)


def test_D32_a_lost_checkpoint_is_not_taken_for_a_new_feed() -> None:
    """The log is there, the relay's document is not: it says so, and nothing is read."""
    chain = chained(3)
    chain.node.relays._relays.clear()
    chain.run()
    assert chain.node.relay.condition is Condition.OTHER_LOG
    assert "nobody knows of which log" in chain.node.relay.error
    assert len(chain.node.pages()) == 3
    chain.node.control.act(FEED, "reset", {"to": "everything", "why": "the table was restored"})
    chain.master.post("more")
    chain.run()
    assert chain.node.living() == chain.master.living()


def test_D32_a_feed_that_was_posted_to_is_not_written_over() -> None:
    """Its pages are another log's."""
    chain = Chain()
    chain.node.post("of our own")
    chain.master.post("theirs")
    chain.run()
    assert chain.node.relay.condition is Condition.OTHER_LOG
    assert [text for _, text, _ in chain.node.pages()] != [
        text for _, text, _ in chain.master.pages()
    ]


def test_a_page_that_nobody_copied_stops_the_relay() -> None:
    """An older document was put back: it does not try the same for ever."""
    chain = chained(2)
    early = chain.node.relay
    chain.master.post("c")
    chain.run()
    chain.node.relays._relays[FEED] = replace(early, version=chain.node.relay.version + 1)
    chain.run()
    assert chain.node.relay.condition is Condition.OTHER_LOG
    assert "page 3 or one behind it is here" in chain.node.relay.error


def test_an_upstream_with_another_log_is_refused() -> None:
    """The page that we stand at was committed at another second there."""
    chain = chained(2)
    other = Chain()
    other.time.ms += 5_000
    for name in "xyz":
        other.master.post(name)
    chain.net.places[MASTER] = other.master
    chain.run()
    assert chain.node.relay.condition is Condition.OTHER_LOG
    assert len(chain.node.pages()) == 2


def test_D21_an_upstream_that_is_behind_is_waited_for() -> None:
    """No error, no page twice, and nothing goes back."""
    chain = chained(4)
    behind = Chain()
    for number in range(2):
        behind.master.post(f"a{number}", f"b{number}")
    chain.net.places[MASTER] = behind.master
    chain.run()
    assert chain.node.relay.status == "running" and chain.node.relay.checkpoint == 4
    for number in range(2, 6):
        behind.master.post(f"a{number}", f"b{number}")
    chain.run()
    assert chain.node.pages() == behind.master.pages()
    assert chain.node.relay.counts.repeated == 0


def test_a_page_outlives_the_floor() -> None:
    """However old it is when it comes."""
    chain = Chain()
    chain.master.post("old")
    chain.time.ms += 3 * PAGE_MS
    came = chain.time.ms
    chain.run()
    page = chain.node.scene.log._feeds[FEED].pages[1]
    assert page.expires_ms >= came + limits.TTL_SLACK_MS


def test_a_run_ends_in_time_and_rings_for_the_next() -> None:
    """And lets go, so that the next one need not wait."""
    chain = chained(1)
    node = chain.node
    began = chain.time.ms
    node.relayer().run(FEED)
    assert chain.time.ms - began < limits.RELAY_TIMEOUT_S * 1000
    assert node.scene.bells.rings[-1] == (FEED, RELAY)
    assert not node.relay.held(chain.time.ms)


def test_a_quiet_relay_writes_now_and_then() -> None:
    """Every ten seconds or after each reply that waited, so that its lease and figures are new."""
    chain = chained(1)
    before = chain.node.relay.version
    chain.node.relayer().run(FEED)
    writes = chain.node.relay.version - before
    assert writes <= limits.RELAY_RUN_MS // limits.RELAY_TELL_MS


def test_a_feed_that_is_local_has_no_relay() -> None:
    """Nothing is written."""
    chain = Chain()
    assert chain.master.run() == 0
    assert chain.master.relays.relays() == []


# --- operators -----------------------------------------------------------------------------------


def test_D22_a_pause_stops_reading_and_nothing_is_lost() -> None:
    """In the middle of a run, too; on goes from the next page."""
    chain = chained(2)
    node = chain.node

    def pause() -> None:
        if node.relay.wanted is Wanted.RUN:
            node.control.act(FEED, "pause", {})
            chain.master.post("meanwhile")

    chain.net.meanwhile = pause
    chain.run()
    asked = len(chain.net.asked)
    chain.run()
    assert len(chain.net.asked) == asked
    assert node.relay.status == "paused"
    assert len(node.pages()) == 2

    chain.net.meanwhile = lambda: None
    node.control.act(FEED, "resume", {})
    chain.run()
    assert same(chain)
    assert node.relay.counts.repeated == 0


def test_D24_what_was_shut_down_starts_from_what_is_saved() -> None:
    """Nothing is asked for meanwhile."""
    chain = chained(2)
    chain.node.control.act(FEED, "shutdown", {})
    chain.master.post("c")
    chain.net.asked.clear()
    chain.run()
    assert chain.net.asked == []
    chain.node.control.act(FEED, "start", {})
    chain.run()
    assert chain.net.asked[0] == (MASTER, 2)
    assert same(chain)


# --- falling off ---------------------------------------------------------------------------------


def fallen(fall_off: FallOff) -> Chain:
    """One whose upstream gave up pages that it has not read."""
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
    assert relay.condition is Condition.FELL_OFF and relay.checkpoint == 3
    assert "begins with page 7" in relay.error
    assert chain.node.scene.counted["RelayFellOff"] == 1
    chain.net.asked.clear()
    chain.run()
    assert chain.net.asked == []

    chain.node.control.act(FEED, "reset", {"to": "everything", "why": "it fell off"})
    chain.run()
    assert chain.node.living() == chain.master.living()


def test_D16_who_bootstraps_has_what_the_master_has() -> None:
    """It is counted, the floor is behind what is missing, and the log goes on."""
    chain = fallen(FallOff.BOOTSTRAP)
    node, relay = chain.node, chain.node.relay
    assert relay.condition is Condition.RUNNING and relay.copy is None
    assert relay.checkpoint == 9 and node.scene.log.floor(FEED) == 10
    assert relay.low_watermark == 10
    assert node.scene.counted["RelayFellOff"] == 1
    assert node.living() == chain.master.living()

    chain.master.post("more")
    chain.run()
    assert node.living() == chain.master.living()
    assert [number for number, _, _ in node.pages()] == [10]


def test_D20_who_wants_the_latest_forgets_the_rest() -> None:
    """What was here is deleted, and only what comes next is copied."""
    chain = fallen(FallOff.LATEST)
    node = chain.node
    assert node.relay.checkpoint == 9 and node.living() == {}
    assert node.scene.counted["RelayFellOff"] == 1
    chain.master.post("next")
    chain.run()
    assert list(node.living()) == ["video/next"]


def test_a_reader_that_fell_off_with_its_feed_is_told_everything() -> None:
    """By the time of its cursor: changes and deletions, then the log behind the copy."""
    chain = chained(3)
    node = chain.node
    page = node.scene.reader.at(FEED, 3)
    assert page is not None
    chain.master.post("a0", event="delete")
    for name in "uvwxyz":
        chain.master.post(name)
    chain.master.trim(9)
    chain.run()

    progress = node.scene.catch_up.start(FEED, page.end)
    told: dict[str, str] = {}
    while True:
        step = node.scene.catch_up.step(FEED, progress, Filter())
        told |= {
            event.data.split('"id":"')[1].split('"')[0]: event.name
            for event in step.events
            if event.data
        }
        progress = step.progress
        if step.at_frontier:
            break
    assert told["a0"] == "delete"
    assert set("uvwxyz") <= set(told)


# --- roles ---------------------------------------------------------------------------------------


def test_D41_roles_can_be_configured() -> None:
    """Without a coordinator: a leader reads the master, a follower its leader."""
    chain = Chain()
    address = "https://follower.example/feeds/main"
    follower = Node(chain.net, address, Source(MASTER, role=Role.FOLLOWER, leader=chain.node.url))
    chain.master.post("a")
    chain.run()
    follower.run()
    assert follower.pages() == chain.master.pages()
    assert (follower.relay.role, follower.relay.upstream) == (Role.FOLLOWER, chain.node.url)
    assert follower.relay.master == MASTER


def test_D40_a_follower_that_becomes_leader_goes_on_where_it_stands() -> None:
    """And back: the same log, no page twice, nothing asked for again."""
    cluster = Cluster(2)
    one, two = cluster.nodes
    for name in "abc":
        cluster.master.post(name)
    one.run()
    cluster.time.ms = one.relay.upstream_read_ms
    two.run()
    assert one.relay.role is Role.LEADER

    cluster.time.ms += limits.SEAT_MS
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
    """For the moment of an election it may be so; a cycle of one's own making is another thing."""
    cluster = Cluster(2)
    one, two = cluster.nodes
    one.run()
    cluster.time.ms += limits.SEAT_MS
    two.run()
    relay = two.relay
    looped = replace(relay, via=(one.relay.id, relay.id))
    assert two.relays.write(relay, looped)
    cluster.time.ms = two.relay.upstream_read_ms
    one.run()
    assert not one.relay.stands
    one.run()
    assert one.relay.role is Role.LEADER


def test_a_paused_leader_keeps_its_seat() -> None:
    """And reads nothing; one that is shut down gives it up."""
    cluster = Cluster(1)
    node = cluster.nodes[0]
    node.run()
    node.control.act(FEED, "pause", {})
    cluster.net.asked.clear()
    renewed: list[int] = []

    def look(ms: int) -> None:
        renewed.append(len(cluster.leaders()))
        cluster.time.ms += ms

    replace(node.relayer(), sleep=look).run(FEED)
    assert cluster.net.asked == [] and set(renewed[1:]) == {1}
    node.control.act(FEED, "shutdown", {})
    node.run()
    assert cluster.leaders() == []


def test_D35_operations_are_counted_as_received() -> None:
    """What `/status` calls events received are operations that were copied."""
    chain = chained(3)
    assert chain.node.scene.log.taken(FEED).operations == 6
    chain.master.scene.post(op("c"))
    chain.master.scene.project()
    chain.run()
    assert chain.node.scene.log.taken(FEED).operations == 7
