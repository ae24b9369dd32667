"""Under any failures and crashes a chained feed is a prefix of its master's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.relay_scene import Chain, Killed
from tests.unit.core.scene import FEED, TOMBSTONE_MS
from tidings.core import limits
from tidings.core.errors import NothingDone, Unavailable
from tidings.core.replication.bootstrap import StateLease
from tidings.core.replication.relay import Relay
from tidings.core.replication.replicate import Relayer
from tidings.core.state.rows import project

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
