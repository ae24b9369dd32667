"""A relay runs one at a time, and writes all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.relay_scene import (
    MASTER,
    Chain,
    Killed,
    Net,
    Node,
    chained,
    posted,
    same,
)
from tests.unit.core.scene import FEED, PAGE_MS, TOMBSTONE_MS
from tidings.core import limits
from tidings.core.errors import NothingDone, Unavailable
from tidings.core.model.cursors import START
from tidings.core.model.pages import Page
from tidings.core.replication.bootstrap import StateLease
from tidings.core.replication.relay import RELAY, Relay, RelayStatus
from tidings.core.replication.replicate import Relayer
from tidings.core.replication.source import Selection
from tidings.core.state.rows import project


class Failing:
    """The relays of a node that fail on the next `append`: before it is done, or after."""

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


def test_a_second_run_leaves_the_first_one_alone() -> None:
    """The second run does nothing while the first one holds the relay."""
    chain = posted("a")
    seen: list[int] = []
    chain.net.meanwhile = lambda: seen.append(chain.node.relayer().run(FEED))
    chain.run()
    assert set(seen) == {0}
    assert same(chain)


def test_D5_a_run_that_is_killed_is_followed_by_another() -> None:
    """The next run starts when its lease has expired; pages come whole, and none twice."""
    chain = posted(*"abc")

    def kill() -> None:
        raise Killed

    chain.net.meanwhile = kill
    with pytest.raises(Killed):
        chain.run()
    chain.net.meanwhile = lambda: None
    assert chain.node.run() == 0
    chain.time.ms += limits.RELAY_LEASE_MS
    assert chain.node.run() == 3
    assert same(chain)


@pytest.mark.parametrize("before", [True, False])
def test_D31_what_cannot_be_saved_is_not_here(before: bool) -> None:
    """With a lost request and with a lost answer the checkpoint is right, and no page is stored
    twice."""
    chain = posted(*"abc")
    failing = Failing(chain.node, before=before)
    copied = chain.node.run(store=failing)

    assert same(chain)
    assert chain.node.relay.counts.pages == 3
    assert copied == (3 if before else 0)


def test_D30_a_store_that_does_not_answer_is_told() -> None:
    """Never acknowledged: the run fails, nothing is here."""
    chain = posted("a")
    with pytest.raises(Unavailable):
        chain.node.run(store=Failing(chain.node, before=True, times=99))
    assert chain.node.pages() == []
    assert chain.node.relay.checkpoint == 0


def test_D7_readers_never_see_part_of_a_page() -> None:
    """They never see a page without the ones before it either, at any moment of a run."""
    chain = Chain()
    for number in range(200):
        chain.master.post(f"a{number}", f"b{number}")
    whole = chain.master.pages()
    lengths: list[int] = []

    class Checking(Failing):
        def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
            assert len(pages) <= limits.BATCH_PAGES_MAX
            done = self.relays.append(before, after, pages)
            copied = chain.node.pages()
            assert copied == whole[: len(copied)]
            assert len(copied) == chain.node.relay.checkpoint == chain.node.scene.log.head(FEED)
            lengths.append(len(copied))
            return done

    chain.node.run(store=Checking(chain.node, before=True, times=0))
    assert lengths[-1] == 200 and len(lengths) > 2


def test_D8_pages_that_come_again_are_counted_and_ignored() -> None:
    """An upstream that ignores the requested position sends them."""
    chain = chained(3)
    chain.master.post("new")
    batch = chain.master.replication_reader.pages(FEED, START, Selection(), 10**6)

    class Repeating(Net):
        def pages(self, *args: Any, **named: Any) -> Any:
            chain.time.ms += 20_000
            return batch

    chain.node.run(upstream=Repeating(chain.time, chain.net.places))
    assert same(chain)
    relay = chain.node.relay
    assert relay.counts.pages == 4
    assert relay.counts.repeated >= 3


def test_D8_a_gap_is_never_written() -> None:
    """The next page must have the next number."""
    chain = chained(3)
    chain.master.post_each(*"xyz")
    batch = chain.master.replication_reader.pages(FEED, chain.node.relay.place, Selection(), 10**6)

    class Skipping:
        def pages(self, *args: Any, **named: Any) -> Any:
            return replace(batch, pages=batch.pages[1:])

    chain.node.run(upstream=Skipping())
    assert len(chain.node.pages()) == 3
    assert "instead of page 4" in chain.node.relay.error


def test_D28_what_readers_did_not_manage_is_theirs() -> None:
    """The copy continues, and a follower that failed reads the whole page again from its
    checkpoint."""
    chain = chained(2)
    chain.master.post("c")
    chain.node.relayer().run(FEED)
    assert chain.node.scene.followers.checkpoints(FEED)["state"] == 2
    chain.node.scene.project()
    assert same(chain)


def test_D32_a_lost_checkpoint_is_not_taken_for_a_new_feed() -> None:
    """If the log exists without the relay's document, the relay reports it and reads nothing."""
    chain = chained(3)
    chain.node.relays.records.forget(FEED)
    chain.run()
    assert chain.node.relay.condition is RelayStatus.OTHER_LOG
    assert "their upstream is unknown" in chain.node.relay.error
    assert len(chain.node.pages()) == 3
    chain.node.act("reset", to="everything", why="the table was restored")
    chain.master.post("more")
    chain.run()
    assert chain.node.living() == chain.master.living()


def test_D32_a_feed_that_was_posted_to_is_not_written_over() -> None:
    """Its pages are another log's."""
    chain = posted("theirs")
    chain.node.post("of our own")
    chain.run()
    assert chain.node.relay.condition is RelayStatus.OTHER_LOG
    assert set(chain.node.living()) == {"video/of our own"}


def test_a_page_that_nobody_copied_stops_the_relay() -> None:
    """An older document was put back: it does not try the same for ever."""
    chain = chained(2)
    early = chain.node.relay
    chain.master.post("c")
    chain.run()
    assert chain.node.relays.write(chain.node.relay, early)
    chain.run()
    assert chain.node.relay.condition is RelayStatus.OTHER_LOG
    assert "page 3 or a later one exists already" in chain.node.relay.error


def test_an_upstream_with_another_log_is_refused() -> None:
    """The page at our position was committed at another second there."""
    chain = chained(2)
    other = Chain()
    other.time.ms += 5_000
    other.master.post_each(*"xyz")
    chain.net.places[MASTER] = other.master
    chain.run()
    assert chain.node.relay.condition is RelayStatus.OTHER_LOG
    assert len(chain.node.pages()) == 2


def test_a_master_that_is_behind_is_another_log() -> None:
    """The master was restored: its next pages would differ from the local ones."""
    chain = chained(4)
    behind = Chain()
    behind.master.post("a0", "b0")
    chain.net.places[MASTER] = behind.master
    chain.run()
    assert chain.node.relay.condition is RelayStatus.OTHER_LOG
    assert "beyond the end of this log, which is page 1" in chain.node.relay.error


def test_D21_an_upstream_that_is_behind_is_waited_for() -> None:
    """It is a copy that has not reached that page yet: no error, no page twice, and no step
    back."""
    chain = chained(4)
    behind = Chain()
    for number in range(2):
        behind.master.post(f"a{number}", f"b{number}")
        behind.time.ms += 1_000
    committed_ms = behind.time.ms
    behind.run()
    behind.time.ms = committed_ms  # the pages have to be those that are here
    chain.net.places[MASTER] = behind.node
    chain.node.relays.write(chain.node.relay, replace(chain.node.relay, id="another"))
    chain.run()
    assert chain.node.relay.status == "running" and chain.node.relay.checkpoint == 4
    for number in range(2, 6):
        behind.master.post(f"a{number}", f"b{number}")
        behind.time.ms += 1_000
    behind.run()
    chain.run()
    assert chain.node.pages() == behind.master.pages()
    assert chain.node.relay.counts.repeated == 0


def test_a_page_outlives_the_floor() -> None:
    """This holds for a page of any age."""
    chain = posted("old")
    chain.time.ms += 3 * PAGE_MS
    came = chain.time.ms
    chain.run()
    page = chain.node.scene.log._feeds[FEED].pages[1]
    assert page.expires_ms >= came + limits.TTL_SLACK_MS


def test_a_run_ends_in_time_and_wakes_the_next() -> None:
    """It releases its lease, so that the next run need not wait."""
    chain = chained(1)
    node = chain.node
    began = chain.time.ms
    node.relayer().run(FEED)
    assert chain.time.ms - began < limits.RELAY_TIMEOUT_S * 1000
    assert node.scene.waker.woken[-1] == (FEED, RELAY)
    assert not node.relay.is_held(chain.time.ms)


def test_a_quiet_relay_writes_now_and_then() -> None:
    """Every ten seconds or after each reply that waited, so that its lease and figures are new."""
    chain = chained(1)
    before = chain.node.relay.version
    chain.node.relayer().run(FEED)
    writes = chain.node.relay.version - before
    assert writes <= limits.RELAY_RUN_MS // limits.RELAY_SAVE_MS


def test_a_feed_that_is_local_has_no_relay() -> None:
    """Nothing is written."""
    chain = Chain()
    assert chain.master.run() == 0
    assert chain.master.relay == Relay(FEED)


NAMES = st.sampled_from("abcdef")
POST = st.tuples(st.just("post"), NAMES, st.sampled_from(("update", "delete")))
ACTIONS = st.one_of(
    POST,
    POST,
    st.tuples(st.just("run"), st.just(""), st.just("")),
    st.tuples(st.just("trim"), st.just(""), st.just("")),
    st.tuples(st.sampled_from(("pause", "start", "shutdown", "resume")), st.just(""), st.just("")),
    st.tuples(st.just("reset"), st.just(""), st.just("")),
)
# The number of effects that succeed, the fault at the next one, and whether it strikes before or
# after that effect.
FAULTS = st.tuples(st.integers(0, 12), st.sampled_from(("kill", "lose", "meddle")), st.booleans())


class Faults:
    """What happens at which effect of the runs of a relay; in the end nothing."""

    def __init__(self, planned: list[tuple[int, str, bool]], meddle: Callable[[], None]) -> None:
        self._planned: Iterator[tuple[int, str, bool]] = iter(planned)
        self._meddle = meddle
        self._next = next(self._planned, None)

    def stop(self) -> None:
        self._next = None

    def effect(self, call: Callable[[], Any]) -> Any:
        if self._next is None:
            return call()
        left, kind, before = self._next
        if left:
            self._next = left - 1, kind, before
            return call()
        self._next = next(self._planned, None)
        if before:
            self._strike(kind)
        answer = call()
        if not before:
            self._strike(kind)
        return answer

    def _strike(self, kind: str) -> None:
        if kind == "kill":
            raise Killed
        if kind == "lose":
            raise Unavailable("no answer")
        self._meddle()


class Effects:
    """A port that counts each of its calls as an effect."""

    def __init__(self, faults: Faults, target: object) -> None:
        self._faults, self._target = faults, target

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        return lambda *args, **named: self._faults.effect(lambda: method(*args, **named))


class History:
    """A master, a feed that copies it, and everything that the master ever said."""

    def __init__(self, planned: list[tuple[int, str, bool]]) -> None:
        self.chain = Chain()
        self.said: dict[int, tuple[str, int]] = {}
        self.faults = Faults(planned, self._meddle)

    def do(self, action: str, name: str, event: str) -> None:
        master, node = self.chain.master, self.chain.node
        if action == "post":
            page = master.post(name, name + "2", event=event)
            self.said[page.number] = page.text, page.at_ms
        elif action == "trim":
            master.trim(max(1, len(self.said) - 1))
        elif action == "run":
            self.run()
        else:
            fields = {"to": "everything", "why": "a test"} if action == "reset" else {}
            with suppress(NothingDone):
                node.act(action, **fields)
        self.check()

    def run(self) -> None:
        scene = self.chain.node.scene
        try:
            self._relayer().run(FEED)
        except Unavailable:
            pass
        except Killed:
            self.chain.time.ms += limits.RELAY_LEASE_MS
        self.check()
        scene.project()

    def check(self) -> None:
        """Check that every page is the master's, none is missing, and the checkpoint is the last
        one."""
        node = self.chain.node
        relay, floor = node.relay, node.scene.log.floor(FEED)
        pages = {number: (text, at_ms) for number, text, at_ms in node.pages()}
        assert pages == {number: self.said[number] for number in range(floor, relay.checkpoint + 1)}
        assert node.scene.log.head(FEED) == relay.checkpoint
        assert relay.counts.operations >= 2 * len(pages)

    def settle(self) -> None:
        """Let everything work again, and let the master post a few more pages."""
        node = self.chain.node
        self.faults.stop()
        for action in ("start", "resume"):
            self.do(action, "", "")
        for _ in range(4):
            self.do("post", "z", "update")
            self.chain.time.ms += limits.RELAY_LEASE_MS
            self.run()
        while node.scene.project():
            pass
        assert node.relay.checkpoint == len(self.said)
        assert node.living() == self._fold() == self.chain.master.living()

    def _fold(self) -> dict[str, str]:
        pages = self.chain.master.scene.log._feeds[FEED].pages
        rows = project((pages[number] for number in sorted(pages)), tombstone_ms=TOMBSTONE_MS)
        recent = {row.key: row.line for row in rows if not row.deleted}
        return self.chain.master.living() | recent

    def _meddle(self) -> None:
        """Act as an operator, or replace the document during a run."""
        node = self.chain.node
        before: Relay = node.relay
        node.relays.write(before, before)

    def _relayer(self) -> Relayer:
        node, faults = self.chain.node, self.faults
        scene = node.scene
        effects: Any = partial(Effects, faults)
        bootstrapper = replace(
            node.bootstrapper(),
            upstream=effects(node.net),
            states=effects(scene.state),
            log=effects(scene.log),
            lease=StateLease(effects(scene.followers), scene.waker, scene.runtime),
        )
        return node.relayer(store=effects(node.relays), bootstrapper=bootstrapper)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=14), st.lists(FAULTS, max_size=14))
def test_D5_D31_a_chained_feed_is_a_prefix_of_its_master(
    actions: list[tuple[str, str, str]], planned: list[tuple[int, str, bool]]
) -> None:
    """This holds at every moment; in the end both logs and states are equal."""
    history = History(planned)
    for action in actions:
        history.do(*action)
    history.settle()
