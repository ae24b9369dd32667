"""A feed with named consumers; its messages are numbered in the order of their posts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.fakes import MemoryConsumers
from tests.unit.core.scene import FEED, Scene, op
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.log_view import LogView
from tidings.core.consumers.service import (
    Acknowledgement,
    ConsumerMonitor,
    ConsumerRepository,
    ConsumerRetention,
    Consumers,
    Reason,
    Session,
)
from tidings.core.model import filters
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import Retention
from tidings.core.model.operations import parse_line

WHY = Reason("ann", "a test")


@dataclass
class ConsumerScene:
    """`scene` and all that named consumers are made of."""

    scene: Scene = field(default_factory=Scene)
    store: MemoryConsumers = field(default_factory=MemoryConsumers)

    def __post_init__(self) -> None:
        scene = self.scene
        self.view = LogView(scene.reader)
        self.consumers = Consumers(ConsumerRepository(self.store), self.view, scene.clock)
        self.places: list[Place] = []

    def post(self, *kinds: str, together: bool = False) -> None:
        """Post one message for each of these types; message n is the object n."""
        first = len(self.places)
        made = [op(str(first + at), type=kind) for at, kind in enumerate(kinds)]
        for each in [made] if together else [[one] for one in made]:
            page = self.scene.post(*each)
            self.places += [Place(page.number, slot, page.seconds) for slot in range(len(each))]

    def register(
        self, name: str = "c0", start: str = "oldest", types: Iterable[str] | None = None
    ) -> Consumer:
        kept = Consumer(FEED, name, filters.of({"types": types}))
        return self.consumers.register(FEED, name, kept, start)[0]

    def consumer(self, name: str = "c0") -> Consumer:
        return self.consumers.repository.consumer(FEED, name)

    def lease(self, name: str = "c0", worker: str = "w") -> Session:
        return self.consumers.lease(FEED, name, worker)

    def ack(
        self,
        session: Session,
        *ids: int,
        through: int | None = None,
        sending: int | None = None,
        retried: tuple[str, ...] = (),
    ) -> Session:
        """Acknowledge messages by their numbers."""
        acknowledgement = Acknowledgement(
            None if through is None else self.places[through],
            tuple(self.places[each] for each in ids),
            None if sending is None else self.places[sending],
            retried,
        )
        held = session.consumer
        return self.consumers.acknowledge(FEED, held.name, held.fence, acknowledgement)

    def fail(self, session: Session, number: int | None, error: str = "it broke") -> Session:
        held = session.consumer
        entry = "" if number is None else self.places[number].encode()
        return self.consumers.fail(FEED, held.name, held.fence, entry, error)

    def due(self, name: str = "c0") -> list[int]:
        """Return the messages that a worker would be sent now, in order."""
        numbers, consumer = [], self.consumer(name)
        while entry := self.view.upcoming(consumer):
            numbers.append(int(parse_line(entry.line).id))
            consumer = self.view.advance(consumers.ack_entries(consumer, [entry.place]))
        return numbers

    def monitor(self, age_ms: int) -> ConsumerMonitor:
        return ConsumerMonitor(self.consumers, Retention(age_ms, 0), self.scene.count)

    def holds(self, cap_ms: int) -> ConsumerRetention:
        return ConsumerRetention(self.store, Retention(cap_ms, 0))


def registered(*kinds: str, types: Iterable[str] | None = None) -> ConsumerScene:
    """Register the consumer `c0`, then post these messages."""
    scene = ConsumerScene()
    scene.register(types=types)
    scene.post(*kinds)
    return scene
