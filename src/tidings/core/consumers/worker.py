"""
Consuming: what the worker of a named consumer does, and what anybody may know of consumers.

Each call costs a read and a write of the consumer, whatever it acknowledges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers import position
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.errors import InvalidConsumer, UnknownParked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.consumers.consumer import Parked
    from tidings.core.consumers.log_view import LogView
    from tidings.core.consumers.position import Position
    from tidings.core.consumers.repository import Book
    from tidings.core.consumers.stores import ConsumerShelf
    from tidings.core.effects import Clock
    from tidings.core.model.cursors import Place


@dataclass(frozen=True, slots=True)
class Session:
    """What a worker has to know to go on: where to resume, and what is different meanwhile."""

    consumer: Consumer
    cursor: str


@dataclass(frozen=True, slots=True)
class Lag:
    """
    *pages* lie between a consumer and the head of the log; the oldest has been there *ms*.

    *fell_off*: pages that it needs are gone.
    """

    pages: int
    ms: int
    fell_off: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """
    What a worker has written, and what it is about to write.

    Everything up to *through*, the entries *ids* wherever they stand, and *retried*, parked
    messages. Skipping a message is acknowledging it.
    """

    through: Position | None = None
    ids: tuple[Place, ...] = ()
    sending: Position | None = None
    retried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workers:
    """Leases, acknowledgements and failures."""

    book: Book
    view: LogView
    shelf: ConsumerShelf
    clock: Clock

    def lease(self, feed: str, name: str, worker: str) -> Session:
        """
        *worker* holds the consumer from now on, for `limits.CONSUMER_LEASE_MS`.

        Raises:
            UnknownConsumer, ConsumerHeld, ConsumerFellOff: see there.
        """
        if not 0 < len(worker) <= limits.WORKER_CHARS_MAX:
            rule = f"must have 1 to {limits.WORKER_CHARS_MAX} characters"
            raise InvalidConsumer(rule, field="worker", value=worker)

        floor = 0

        def take(standing: Consumer) -> Change:
            nonlocal floor
            floor = self.view.check_within(standing)
            return Change(consumers.taken(standing, worker, self.clock()))

        held = self.book.change(feed, name, take)
        return self._session(held, floor)

    def acknowledge(self, feed: str, name: str, fence: int, ack: Acknowledgement) -> Session:
        """
        Take *ack* and renew the lease.

        Raises:
            UnknownConsumer, FenceLost, InvalidConsumer: nothing of it was taken.
        """
        furthest = position.later(ack.through, ack.sending)
        if furthest is not None:
            field = "through" if furthest == ack.through else "sending"
            self.view.check_reached(feed, furthest, field)
        self.view.check_entries(feed, ack.ids)

        def take(standing: Consumer) -> Change:
            consumers.check_fence(standing, fence)
            done = consumers.renewed(self._after(standing, ack), self.clock())
            return Change(_without(done, ack.retried), drop=ack.retried)

        return self._session(self.book.change(feed, name, take))

    def fail(self, feed: str, name: str, fence: int, entry: str, error: str) -> Session:
        """
        The worker could not write *entry* (empty: it cannot tell which) and lets go.

        A parked message that failed again stays parked, with the new error.

        Raises:
            UnknownConsumer, FenceLost: see there.
        """
        now_ms = self.clock()
        parked = {each.id: each for each in self.shelf.parked(feed, name)} if entry else {}

        def take(standing: Consumer) -> Change:
            consumers.check_fence(standing, fence)
            if entry in standing.retries and entry in parked:
                again = _again(parked[entry], error, now_ms)
                return Change(consumers.not_retried(standing, (entry,)), park=again)
            return Change(consumers.failed(standing, entry, error, now_ms))

        return self._session(self.book.change(feed, name, take))

    def release(self, feed: str, name: str, fence: int) -> Session:
        """
        The worker has finished and lets go; nothing that it was sent is in doubt.

        Raises:
            UnknownConsumer, FenceLost: see there.
        """

        def take(standing: Consumer) -> Change:
            consumers.check_fence(standing, fence)
            return Change(consumers.released(standing))

        return self._session(self.book.change(feed, name, take))

    def _after(self, standing: Consumer, ack: Acknowledgement) -> Consumer:
        done = standing if ack.through is None else consumers.passed(standing, ack.through)
        done = consumers.confirmed(done, ack.ids)
        idle = ack.through or not done.sent  # nothing is being written now
        if ack.ids or done.acked or (idle and not ack.sending):
            done = self.view.advanced(done)  # what is not for it may be all that is left
        return done if ack.sending is None else consumers.sending(done, ack.sending)

    def _session(self, consumer: Consumer, floor: int = 0) -> Session:
        """*floor* 0: not read yet; who was here a moment ago may be answered without it."""
        if consumer.position is None and not floor:
            floor = self.view.floor(consumer.feed)
        return Session(consumer, position.cursor(consumer.position, floor))


@dataclass(frozen=True, slots=True)
class Watchers:
    """What anybody may know who may read the feed."""

    book: Book
    view: LogView
    shelf: ConsumerShelf
    clock: Clock

    def consumers(self, feed: str) -> Sequence[tuple[Consumer, Lag]]:
        stored = self.book.store.consumers(feed)
        if not stored:
            return []
        head, floor = self.view.reader.log.head(feed), self.view.floor(feed)
        return [(each, self._lag(each, head, floor)) for each in stored]

    def consumer(self, feed: str, name: str) -> tuple[Consumer, Lag]:
        """
        Raises:
            InvalidConsumer, UnknownConsumer: there is none.
        """
        consumer = self.book.consumer(feed, name)
        return consumer, self._lag(consumer, self.view.reader.log.head(feed), self.view.floor(feed))

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        """
        Raises:
            InvalidConsumer, UnknownConsumer: there is none.
        """
        self.book.consumer(feed, name)
        return self.shelf.parked(feed, name)

    def _lag(self, consumer: Consumer, head: int, floor: int) -> Lag:
        handled = position.handled(consumer.position)
        if handled is None:
            return Lag(head, 0)
        fell_off = position.fell_off(consumer.position, floor)
        after = max(handled, floor - 1)
        run = self.view.reader.read_on(consumer.feed, after, 1)
        fell_off = fell_off or run.trimmed
        waits = self.clock() - run.pages[0].at_ms if run.pages else 0
        return Lag(max(0, head - after), max(0, waits), fell_off)


def _without(consumer: Consumer, retried: Sequence[str]) -> Consumer:
    """
    Raises:
        UnknownParked: one of *retried* was not to be sent again.
    """
    if not retried:
        return consumer
    for each in retried:
        if each not in consumer.retries:
            raise UnknownParked("was not to be sent again", field="retried", value=each)
    return consumers.unparked(consumer, set(retried))


def _again(parked: Parked, error: str, now_ms: int) -> Parked:
    cut = error[: limits.ERROR_CHARS_MAX]
    return replace(parked, error=cut, at_ms=now_ms, attempts=parked.attempts + 1)
