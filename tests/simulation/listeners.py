"""Listeners: they register, bootstrap by paging while a small buffer takes their items, go live.

A listener fetches the object of an item from its owner, which has the log's value. One with a full
buffer leaves, forgets and begins again. At the end each knows every object of its type.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from tests.simulation.functions import FEED
from tests.simulation.model import Broken, Wanted
from tests.simulation.process import Process
from tests.simulation.producer import TYPES
from tests.simulation.sockets import Caller
from tests.simulation.world import World
from tidings.client.listener import MemoryBuffer
from tidings.core.auth.guard import ALL
from tidings.core.settings.values import Resource

RATES: Final = {"dawdle": 0.05}  # a listener does something else for a while
LEADS_TO: Final = (
    "listener went live",
    "item was told",
    "buffer overflowed in the bootstrap",
    "buffer overflowed when live",
)
SUBS: Final = ("nic", "alias")
PAGES: Final = {"OBJECTS_MAX": 3, "OBJECTS_READS_MAX": 8}  # so that a bootstrap takes a while
_BUFFERS: Final = (2, 4, 8)
_LISTENERS: Final = (2, 4)
_BROWSE_TIMEOUT_S, _PAGE_MS = 20, 5_000
_FETCH_MS, _DAWDLE_MS = (5, 300), (2_000, 12_000)
_PING: Final = 0.02  # at each turn
_MAX_AGE_S = 8 * 3600


class ListenerClient(Caller):
    """*known* is what it has of the objects of *kind*, *live* whether its bootstrap is done."""

    def __init__(self, world: World, name: str, buffer: type[MemoryBuffer]) -> None:
        super().__init__(world, name)
        self.kind = world.random.choice(TYPES)
        self.buffer = buffer(world.random.choice(_BUFFERS))
        self.known: dict[str, dict[str, Any]] = {}
        self.live = False
        self._answered = self._ponged = False
        world.scheduler.spawn(name, self._live)

    def check(self) -> None:
        """At rest, check that it knows every object."""
        if not self.live or len(self.buffer):
            raise Broken(f"{self.name} does not come to rest")
        latest = self.world.model.latest(Wanted(types=frozenset({self.kind})))
        there = {key[1]: op.data for key, op in latest.items() if op.event != "delete"}
        if self.known != there:
            wrong = [id for id in {*self.known, *there} if self.known.get(id) != there.get(id)]
            raise Broken(f"{self.name} is wrong about {sorted(wrong)} of {self.kind}")

    # --- the life of a listener -----------------------------------------------------------------

    def _live(self) -> None:
        while True:
            self.world.sleep_through_lull()
            if self._connect() and self._registered() and self._bootstrapped():
                self.live = True
                self.world.faults.saw("listener went live")
                self._stay()
            self._leave("begins again")
            self.world.scheduler.sleep(self.world.random.uniform(100, 3_000))

    def _registered(self) -> bool:
        kind = {"resource": self.kind, "subResources": list(SUBS[:1])}
        self._say(instance=self.name, service="s", changeKind=kind)
        return self._until(lambda: self._answered or not self.connected) and self.connected

    def _bootstrapped(self) -> bool:
        found: dict[str, dict[str, Any]] = {}
        after: str | None = ""
        while after is not None and self.connected:
            page = self._page(after)
            if page is not None:
                objects, after = page
                found |= {each["id"]: each for each in objects}
        self.known = found
        return self.connected

    def _page(self, after: str) -> tuple[list[dict[str, Any]], str | None] | None:
        """Return one page of the bootstrap route; None if no answer arrives."""
        answers: list[tuple[list[dict[str, Any]], str | None]] = []

        def browse(process: Process) -> None:
            reader = self.world.functions.services(process).object_reader
            page = reader.page(FEED, self.kind, after, ALL)
            answers.append(([json.loads(each) for each in page.objects], page.after))

        self.world.machine.start("browse", _BROWSE_TIMEOUT_S, browse)
        return answers[0] if self.world.wait_for(answers.__len__, _PAGE_MS, 20) else None

    def _stay(self) -> None:
        """Handle items, until the connection ends or another subscription is due."""
        world = self.world
        while self.connected:
            text = self.buffer.take()
            if text is not None:
                self._fetch(json.loads(text))
            dawdles = world.faults.strikes("dawdle")
            world.scheduler.sleep(world.random.uniform(*(_DAWDLE_MS if dawdles else _FETCH_MS)))
            if world.in_lull or (text is None and world.random.random() < _PING and self._dead()):
                return

    def _dead(self) -> bool:
        """Return True if it hangs up, is gone, or the feed does not answer it."""
        if self.world.faults.strikes("hang_up"):
            return True
        if self.world.faults.strikes("vanish"):
            self._vanish()
            return True
        self._ponged = False
        self._say(action="ping")
        return not self._until(lambda: self._ponged or not self.connected) or not self.connected

    def _fetch(self, item: dict[str, Any]) -> None:
        """Return the object as its owner has it now."""
        key = (self.kind, item["changedResourceId"])
        last = next((op for op in reversed(self.world.model.ops) if op.key == key), None)
        if last is None:
            raise Broken(f"{self.name} was told of {key}, which never was")
        self.known.pop(key[1], None)
        if last.event != "delete":
            self.known[key[1]] = last.data

    # --- received messages ------------------------------------------------------------------------

    def _hear(self, text: str) -> None:
        message = json.loads(text)
        if not self._answered:
            if "bootstrapRoute" not in message:
                raise Broken(f"{self.name}: {text} came before the answer")
            self._answered = True
        elif "reply" in message:
            self._ponged = True
        else:
            self._take(message, text)

    def _take(self, item: dict[str, Any], text: str) -> None:
        if item["changeKind"]["resource"] != self.kind:
            raise Broken(f"{self.name} was told of {item}, which it did not register for")
        self.world.faults.saw("item was told")
        if not self.buffer.put(text):
            self.world.faults.saw(f"buffer overflowed {self._when()}")
            self._leave("overflows")

    def _when(self) -> str:
        return "when live" if self.live else "in the bootstrap"

    def _closed(self) -> None:
        super()._closed()
        self.live = self._answered = False
        self.buffer.clear()

    def _standing(self) -> object:
        return len(self.known)


def begin(world: World, buffer: type[MemoryBuffer]) -> list[ListenerClient]:
    """Make every type a resource from the start."""
    world.faults.add(RATES, LEADS_TO)
    functions = world.functions
    resources = tuple(Resource(name, SUBS, f"/{name}") for name in TYPES)
    for profiles in (functions.profiles, functions.before):
        standing = profiles.profile(FEED)
        declared = replace(standing, resources=resources, max_age_s=_MAX_AGE_S)
        assert profiles.save(FEED, declared)
    count = world.random.randint(*_LISTENERS)
    return [ListenerClient(world, f"l{at}", buffer) for at in range(count)]
