"""
Listeners of a feed among publishers, followers that lag, crashes and small buffers.

A listener knows the version of each object: it reads the feed's own route, and whatever an item
names it fetches from its owner. It reads its socket while it bootstraps, into a bounded buffer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tidings.client.buffers import MemoryBuffer
from tidings.core import limits
from tidings.core.changefeeds import ChangeFeeds
from tidings.core.connections import Connection
from tidings.core.registrations import Listener
from tidings.core.resources import Resource

from tests.unit.scene import FEED, FEEDS, Scene

VM = Resource("vm", ("nic", "alias"), "/feeds/main/objects?type=vm")
NAMES = [f"vm{number}" for number in range(12)]
BUFFER_MAX = 3


@dataclass
class Owner:
    """Has the real objects: the version of each, None where it is deleted."""

    scene: Scene
    random: Random
    versions: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def act(self) -> None:
        """One change, published under one of its sub-resources or both."""
        name = self.random.choice(NAMES)
        self.made += 1
        gone = name in self.versions and self.random.random() < 0.2
        if gone:
            del self.versions[name]
        else:
            self.versions[name] = self.made
        subs = self.random.choice((["nic"], ["alias"], ["nic", "alias"]))
        operation = {"event": "delete" if gone else "update", "type": "vm", "id": name}
        self.scene.post({**operation, "changed": subs, "data": {"version": self.made}})


@dataclass
class Client:
    """One listener; *known* is what it has of the objects. *steps* is where its program stands."""

    name: str
    scene: Scene
    owner: Owner
    asked: ChangeFeeds
    known: dict[str, int] = field(default_factory=dict)
    buffer: MemoryBuffer = field(default_factory=lambda: MemoryBuffer(BUFFER_MAX))
    overflows: int = 0
    live: bool = False
    _connections: int = 0
    _heard: int = 0
    _id: str = ""

    def __post_init__(self) -> None:
        self._steps = self._program()

    def act(self) -> None:
        """Take what the socket has brought, then do the next thing."""
        if self._id and not self._listen():
            self.leave()
        next(self._steps)

    def leave(self) -> None:
        """The connection ends, for whatever reason; the next step registers again."""
        self.scene.connections.remove(self._id)
        self.buffer.clear()
        self._id, self.live = "", False
        self._steps = self._program()

    def settled(self) -> bool:
        sent = self.scene.sockets.sent[self._id]
        return self.live and self._heard == len(sent) and not len(self.buffer)

    def _listen(self) -> bool:
        """False where the connection is gone or an item found no room."""
        sent = self.scene.sockets.sent[self._id]
        for text in sent[self._heard :]:
            if self._heard == 0:
                assert "bootstrapRoute" in json.loads(text), "an item came before the answer"
            elif not self.buffer.put(text):
                self.overflows += 1
                return False
            self._heard += 1
        return self.scene.connections.get(self._id) is not None

    def _program(self) -> Iterator[None]:
        self._connections += 1
        self._heard = 0
        self._id = f"{self.name}-{self._connections}"
        handshake = Listener(1, FEED)
        self.scene.connections.open(Connection(self._id, self.scene.now_ms, listener=handshake))
        yield
        kind = {"resource": "vm", "subResources": ["nic", "alias"]}
        self.scene.say(self._id, instance=self.name, changeKind=kind)
        yield
        yield from self._bootstrap()
        self.live = True
        while True:
            text = self.buffer.take()
            if text is not None:
                self._fetch(json.loads(text))
            yield

    def _bootstrap(self) -> Iterator[None]:
        found: dict[str, int] = {}
        after: str | None = ""
        while after is not None:
            page = self.asked.objects(FEED, "vm", after, None)
            objects: list[dict[str, Any]] = [json.loads(each) for each in page.objects]
            found |= {each["id"]: each["data"]["version"] for each in objects}
            after = page.after
            yield
        self.known = found

    def _fetch(self, item: dict[str, Any]) -> None:
        name = item["changedResourceId"]
        self.known.pop(name, None)
        if name in self.owner.versions:
            self.known[name] = self.owner.versions[name]


class World:
    """One run: *seed* decides everything."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scene = Scene()
        standing = self.scene.profiles.profile(FEED)
        self.scene.profiles.save(FEED, replace(standing, resources=(VM,), max_age_s=3600))
        scene = self.scene
        self.owner = Owner(scene, self.random)
        asked = ChangeFeeds(scene.profiles, scene.registry, scene.state, scene.guard, FEEDS)
        self.clients = [Client(name, scene, self.owner, asked) for name in ("tcns", "cns")]

    def run(self, steps: int) -> None:
        """*steps* of anybody, then quiet until everybody has heard everything."""
        for _ in range(steps):
            self._step()
        for _ in range(1000):
            self._serve()
            for client in self.clients:
                client.act()
            if all(client.settled() for client in self.clients):
                return
        raise AssertionError("the listeners never settle")

    def _step(self) -> None:
        what = self.random.random()
        if what < 0.25:
            self.owner.act()
        elif what < 0.35:
            self.scene.project()
        elif what < 0.55:
            self.scene.push()
        elif what < 0.57:
            self.scene.now_ms += limits.REGISTERING_MS
            self.scene.sweeper.run(FEEDS)
        elif what < 0.59:
            self.random.choice(self.clients).leave()
        else:
            self.random.choice(self.clients).act()

    def _serve(self) -> None:
        self.scene.project()
        self.scene.push()
