"""
Webhook delivery: the worker of the webhooks' named consumers.

Messages of different objects are sent in parallel, messages of one object one after the other. The
first message that its endpoint does not accept stops the webhook. It is sent again alone, with
growing delays, and parked in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup.matching import with_ref
from tidings.core.consumers.position import rank
from tidings.core.consumers.service import Acknowledgement, Reason
from tidings.core.deadlines import is_ahead
from tidings.core.errors import (
    ConsumerFellOff,
    ConsumerHeld,
    FenceLost,
    InvalidConsumer,
    NothingDone,
)
from tidings.core.hooks.stores import Outgoing
from tidings.core.hooks.webhook import delay_ms
from tidings.core.model.envelopes import encoder
from tidings.core.model.events import Event
from tidings.core.model.operations import data_of, event_of, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.changeagent.webhooks import Verdict
    from tidings.core.consumers.consumer import Consumer
    from tidings.core.consumers.log_view import Entry
    from tidings.core.consumers.service import Consumers
    from tidings.core.effects import Clock
    from tidings.core.hooks.stores import Post
    from tidings.core.hooks.webhook import Webhook
    from tidings.core.settings.profiles import ProfileStore

_GONE = 410


@dataclass(frozen=True, slots=True)
class Courier:
    """
    The worker that sends due messages to webhooks.

    *worker* is the name under which it takes leases; no other process may use that name.
    """

    consumers: Consumers
    profiles: ProfileStore
    post: Post
    clock: Clock
    worker: str

    def run(self, feed: str, hook: Webhook, *, look: bool) -> int | None:
        """
        Send due messages to *hook* for at most `limits.WEBHOOK_TURN_MS`.

        Return the time of the next run in ms since 1970, or None: after the next page. With *look*,
        also move the consumer's position past entries that its filter excludes.

        Raises:
            Unavailable: the stores do not answer.
        """
        consumer = self.consumers.store.consumer(feed, hook.name)
        if consumer is None or consumer.paused or consumer.copying:
            return None
        later_ms = again_ms(consumer)
        waits = self._waits(consumer)
        try:
            if not consumer.retries and (waits or not self._concerns(consumer, look=look)):
                return later_ms if waits else None
            held = self.consumers.lease(feed, hook.name, self.worker).consumer
            held = self._retry(hook, held)
            if not waits:
                return self._tell(hook, held)
            self.consumers.release(feed, hook.name, held.fence)
            return later_ms
        except ConsumerHeld:
            return self.clock() + limits.CONSUMER_LEASE_MS
        except ConsumerFellOff:
            return None  # its state shows that, until an operator moves it
        except FenceLost:
            return self.clock()  # an operator changed it

    def _waits(self, consumer: Consumer) -> bool:
        """Return True if the failed message of *consumer* must not be sent again yet."""
        failure = consumer.failure
        if failure is None:
            return False
        return is_ahead(again_ms(consumer), self.clock(), delay_ms(failure.times))

    def _concerns(self, consumer: Consumer, *, look: bool) -> bool:
        """Return True if there is anything to do for *consumer* that is worth a lease."""
        if self.consumers.view.due(consumer, 1):
            return True
        ahead = self.consumers.view.advanced(consumer) if look else consumer
        return rank(ahead.position) > rank(consumer.position)

    def _retry(self, hook: Webhook, held: Consumer) -> Consumer:
        """Send the messages that an operator asked to retry, each alone and once."""
        parked = {each.id: each for each in self.consumers.store.parked(held.feed, held.name)}
        for name in held.retries:
            kept = parked.get(name)
            if kept is None:
                continue  # it was dropped in the meantime
            (verdict,) = self.post([self._request(hook, held.feed, name, kept.line)])
            if verdict.accepts:
                held = self._acknowledge(held, Acknowledgement(retried=(name,)))
            else:
                failed = self.consumers.fail(held.feed, held.name, held.fence, name, str(verdict))
                held = failed.consumer
        return held

    def _tell(self, hook: Webhook, held: Consumer) -> int | None:
        until_ms = self.clock() + limits.WEBHOOK_TURN_MS
        while self.clock() < until_ms:
            batch = self._batch(held)
            if batch:
                held = self._acknowledge(held, Acknowledgement(sending=batch[-1].place))
                verdicts = self.post(
                    [self._request(hook, held.feed, e.place.encode(), e.line) for e in batch]
                )
                held, refused = self._taken(held, batch, verdicts)
                if refused is not None:
                    return self._failed(hook, held, *refused)
                continue
            ahead = self._acknowledge(held, Acknowledgement())
            if rank(ahead.position) == rank(held.position):
                self.consumers.release(held.feed, held.name, held.fence)
                return None
            held = ahead
        self.consumers.release(held.feed, held.name, held.fence)
        return self.clock()

    def _batch(self, held: Consumer) -> list[Entry]:
        """
        Return the messages to send in parallel, one per object; an entry in doubt is sent alone.
        """
        due = self.consumers.view.due(held, limits.WEBHOOK_AT_ONCE)
        if due and rank(due[0].place) <= rank(held.single):
            return due[:1]
        objects: set[str] = set()
        batch: list[Entry] = []
        for entry in due:
            key = key_of(entry.line)
            if key in objects:
                break
            objects.add(key)
            batch.append(entry)
        return batch

    def _request(self, hook: Webhook, feed: str, name: str, line: str) -> Outgoing:
        event = Event(name, event_of(line), data_of(line))
        linked = with_ref(event, self.profiles.profile(feed).object_url)
        body = encoder(hook.format, feed, self.clock)(linked)
        return Outgoing(hook.url, hook.headers(name, body, self.clock()), body)

    def _taken(
        self, held: Consumer, batch: Sequence[Entry], verdicts: Sequence[Verdict]
    ) -> tuple[Consumer, tuple[Entry, Verdict] | None]:
        """Acknowledge the accepted messages; return the first refused one with its verdict."""
        told = list(zip(batch, verdicts, strict=True))
        first = next((at for at, (_, said) in enumerate(told) if not said.accepts), len(told))
        through = told[first - 1][0].place if first else None
        ids = tuple(entry.place for entry, said in told[first:] if said.accepts)
        held = self._acknowledge(held, Acknowledgement(through=through, ids=ids))
        return held, told[first] if first < len(told) else None

    def _failed(self, hook: Webhook, held: Consumer, entry: Entry, said: Verdict) -> int | None:
        """Release *held* after the failure of *entry*; return the time of the next run, or None."""
        feed, name = held.feed, held.name
        told = self.consumers.fail(feed, name, held.fence, entry.place.encode(), str(said)).consumer
        if said.status == _GONE:
            why = Reason(self.worker, "it answered 410: the endpoint is gone")
            self.consumers.pause(feed, name, why, paused=True)
            return None
        times = told.failure.times if told.failure else 1
        if times >= hook.attempts and told.parked < limits.PARKED_MAX:
            try:
                self.consumers.park(feed, name, Reason(self.worker, f"not taken {times} times"))
            except (InvalidConsumer, NothingDone):
                return again_ms(told)  # an operator changed it in the meantime
            return self.clock()
        return again_ms(told)

    def _acknowledge(self, held: Consumer, done: Acknowledgement) -> Consumer:
        return self.consumers.acknowledge(held.feed, held.name, held.fence, done).consumer


def again_ms(consumer: Consumer) -> int:
    """Return when the failed message of *consumer* is sent again, in ms since 1970, or 0."""
    failure = consumer.failure
    return failure.at_ms + delay_ms(failure.times) if failure else 0
