"""A feed with one webhook that has an endpoint in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import MemoryOperatorDocuments
from tests.unit.core.consumers.consumer_scene import ConsumerScene
from tests.unit.core.scene import FEED
from tidings.core.changeagent.webhooks import Outgoing, Verdict
from tidings.core.consumers.consumer import Parked
from tidings.core.hooks.attempts import AttemptLog
from tidings.core.hooks.registry import Registry, WebhookAdmin
from tidings.core.hooks.webhook import Webhook, WebhookDelivery
from tidings.core.model import filters

URL = "https://a.example/told"
OK, BROKEN, GONE = Verdict(200), Verdict(503), Verdict(410)
NAME = "h0"


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Endpoint:
    """Implements `Post`. *says* decides on each request; *told* has the accepted ones in order."""

    says: Callable[[str], Verdict] = lambda name: OK
    told: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)
    requests: list[Outgoing] = field(default_factory=list)
    dies: bool = False

    def __call__(self, requests: Sequence[Outgoing]) -> Sequence[Verdict]:
        names = [object_of(each) for each in requests]
        self.batches.append(names)
        self.asked += names
        self.requests += requests
        said = [self.says(name) for name in names]
        self.told += [name for name, each in zip(names, said, strict=True) if each.accepts]
        if self.dies:
            raise Killed
        return said


def object_of(request: Outgoing) -> str:
    """Return the id of its object, which is the number of the message in `ConsumerScene.post`."""
    return str(json.loads(request.body)["data"]["id"])


@dataclass
class HookScene(ConsumerScene):
    """A scene in which only `later` advances the time."""

    endpoint: Endpoint = field(default_factory=Endpoint)
    documents: MemoryOperatorDocuments = field(default_factory=MemoryOperatorDocuments)

    def __post_init__(self) -> None:
        super().__post_init__()
        attempts = AttemptLog(self.scene.now_ms)
        self.registry = Registry(self.documents)
        self.admin = WebhookAdmin(self.registry, self.consumers, self.scene.clock, bytes, attempts)
        self.delivery = WebhookDelivery(
            consumers=self.consumers,
            profiles=self.scene.profiles,
            post=self.endpoint,
            runtime=self.scene.runtime,
            worker="here",
            attempts=attempts,
        )

    def make(self, types: Sequence[str] | None = None, **given: Any) -> Webhook:
        wanted = filters.of({"types": types})
        return self.admin.put(FEED, NAME, {"url": URL, "from": "oldest", **given}, wanted)[0]

    def run(self, *, look: bool = True) -> int | None:
        """Run once; return in how many ms it must run again, None: with the next page."""
        again = self.delivery.run(FEED, self.registry.webhook(FEED, NAME), look=look)
        return None if again is None else max(0, again - self.scene.now_ms)

    def run_on(self) -> None:
        """Turns until none is due, though days pass."""
        while (again := self.run()) is not None:
            self.scene.now_ms += again

    @property
    def parked(self) -> Sequence[Parked]:
        return self.store.parked(FEED, NAME)


def hooked(*kinds: str, **given: Any) -> HookScene:
    """Create a webhook from the oldest message on, and post these messages."""
    scene = HookScene()
    scene.make(**given)
    scene.post(*kinds)
    return scene
