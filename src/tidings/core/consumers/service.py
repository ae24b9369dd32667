"""The operations that workers, operators, readers and retention perform on named consumers.

Each call of a worker costs a read and a write of the consumer. Actions of operators are safe while
workers run, because each action is one conditional write, and a worker that lost its lease gets an
error at its next acknowledgement. Each action of an operator stores a note with the author, time
and reason of the action. An action that would change nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers import position as positions
from tidings.core.consumers.consumer import Change, Consumer, Note, Parked
from tidings.core.consumers.position import rank, read
from tidings.core.errors import (
    ConsumerExists,
    InvalidConsumer,
    NothingDone,
    UnknownConsumer,
    UnknownParked,
)
from tidings.core.log.due import NEXT_SWEEP
from tidings.core.model.feeds import NAME, NAME_RULE, public_name
from tidings.core.records import until_saved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.consumers.consumer import ConsumerStore
    from tidings.core.consumers.log_view import Entry, LogView
    from tidings.core.consumers.position import Position
    from tidings.core.effects import Clock, Count
    from tidings.core.model.cursors import Place
    from tidings.core.model.feeds import Retention

ALL = "all"


@dataclass(frozen=True, slots=True)
class Reason:
    """The author of an operator's action, and the reason. Both are stored in a note."""

    who: str
    why: str


def reason_from(who: str, why: object) -> Reason:
    """Return the reason of an operator's action.

    Raises:
        InvalidConsumer: *why* is missing or too long.
    """
    if not isinstance(why, str) or not why.strip() or len(why) > limits.WHY_CHARS_MAX:
        rule = f"must give the reason in 1 to {limits.WHY_CHARS_MAX} characters, for a note"
        raise InvalidConsumer(rule, field="why", value=why)
    return Reason(who[: limits.WORKER_CHARS_MAX], why.strip())


def check_name(name: str) -> str:
    """Return *name*.

    Raises:
        InvalidConsumer: *name* cannot name a consumer.
    """
    if not NAME.fullmatch(name):
        raise InvalidConsumer(NAME_RULE, field="consumer", value=name)
    return name


@dataclass(frozen=True, slots=True)
class Session:
    """The answer to a worker: the consumer, and the cursor from which the worker resumes."""

    consumer: Consumer
    cursor: str


@dataclass(frozen=True, slots=True)
class Lag:
    """The distance of a consumer from the head of the log.

    *pages* is the number of pages that the consumer has not handled. The first of these pages was
    committed *ms* ago. *fell_off* is True if pages that the consumer needs are gone.
    """

    pages: int
    ms: int
    fell_off: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The entries that a worker has written, and those that it is about to write.

    The worker acknowledges everything up to *through*, the entries *ids*, and the parked messages
    *retried*, and is about to write the entries up to *sending*. To skip a message, a worker
    acknowledges the message without writing it. *written* is None if it has not changed.
    """

    through: Position | None = None
    ids: tuple[Place, ...] = ()
    sending: Position | None = None
    retried: tuple[str, ...] = ()
    written: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerRepository:
    """The stored consumers. A change is always applied to the latest version of a consumer."""

    store: ConsumerStore

    def consumer(self, feed: str, name: str) -> Consumer:
        """Return the consumer.

        Raises:
            InvalidConsumer, UnknownConsumer: the name is invalid, or unknown.
        """
        consumer = self.store.consumer(feed, check_name(name))
        if consumer is None:
            raise UnknownConsumer("no such consumer of this feed", field="consumer", value=name)
        return consumer

    def change(self, feed: str, name: str, change: Callable[[Consumer], Change]) -> Consumer:
        """Apply *change* and return the result; retry if another process wrote in the meantime.

        If *change* removes the consumer, return its previous state.

        Raises:
            InvalidConsumer, UnknownConsumer: see `consumer`.
            Unavailable: other processes kept writing.
        """

        def attempt() -> Consumer | None:
            stored = self.consumer(feed, name)
            made = change(stored)
            if made == Change(stored) or self.store.write(feed, name, stored.version, made):
                return made.consumer or stored
            return None

        return until_saved(attempt, f"the consumer {public_name(feed)}/{name}")


@dataclass(frozen=True, slots=True)
class Consumers:
    """All operations on the named consumers of a feed."""

    repository: ConsumerRepository
    view: LogView
    clock: Clock

    @property
    def store(self) -> ConsumerStore:
        return self.repository.store

    # Methods for the worker of a consumer.

    def lease(self, feed: str, name: str, worker: str) -> Session:
        """Give the consumer to *worker* for `limits.CONSUMER_LEASE_MS`.

        Raises:
            InvalidConsumer, UnknownConsumer, ConsumerHeld, ConsumerFellOff: the lease was not
                given.
        """
        if not 0 < len(worker) <= limits.WORKER_CHARS_MAX:
            rule = f"must have 1 to {limits.WORKER_CHARS_MAX} characters"
            raise InvalidConsumer(rule, field="worker", value=worker)

        floor = 0

        def take(stored: Consumer) -> Change:
            nonlocal floor
            floor = self.view.check_within(stored)
            return Change(consumers.acquire(stored, worker, self.clock()))

        held = self.repository.change(feed, name, take)
        return self._session(held, floor)

    def acknowledge(self, feed: str, name: str, fence: int, ack: Acknowledgement) -> Session:
        """Apply *ack* and renew the lease.

        Raises:
            UnknownConsumer, FenceLost, InvalidConsumer: nothing was acknowledged.
        """
        furthest = positions.later(ack.through, ack.sending)
        if furthest is not None:
            field = "through" if furthest == ack.through else "sending"
            self.view.check_reached(feed, furthest, field)
        self.view.check_entries(feed, ack.ids)

        def take(stored: Consumer) -> Change:
            consumers.check_fence(stored, fence)
            done = consumers.renew(self._after(stored, ack), self.clock())
            return Change(_without(done, ack.retried), drop=ack.retried)

        return self._session(self.repository.change(feed, name, take))

    def fail(self, feed: str, name: str, fence: int, entry: str, error: str) -> Session:
        """Record that the worker could not write *entry*, and release the lease.

        *entry* is empty if the worker does not know which entry failed. If *entry* is a parked
        message that was sent again, the message stays parked with the new error, and the lease is
        not released.

        Raises:
            UnknownConsumer, FenceLost: nothing was recorded.
        """
        now_ms = self.clock()
        parked = {each.id: each for each in self.store.parked(feed, name)} if entry else {}

        def take(stored: Consumer) -> Change:
            consumers.check_fence(stored, fence)
            if entry in stored.retries and entry in parked:
                again, cut = parked[entry], error[: limits.ERROR_CHARS_MAX]
                again = replace(again, error=cut, at_ms=now_ms, attempts=again.attempts + 1)
                return Change(consumers.not_retried(stored, (entry,)), park=again)
            return Change(consumers.fail(stored, entry, error, now_ms))

        return self._session(self.repository.change(feed, name, take))

    def release(self, feed: str, name: str, fence: int) -> Session:
        """Release the consumer after its worker has finished everything that was sent.

        Raises:
            UnknownConsumer, FenceLost: nothing was released.
        """

        def take(stored: Consumer) -> Change:
            consumers.check_fence(stored, fence)
            return Change(consumers.release(stored))

        return self._session(self.repository.change(feed, name, take))

    def _after(self, stored: Consumer, ack: Acknowledgement) -> Consumer:
        done = stored if ack.through is None else consumers.ack_through(stored, ack.through)
        done = consumers.ack_entries(done, ack.ids)
        idle = ack.through or not done.sent  # the worker is not writing any entry now
        if ack.ids or done.acked or (idle and not ack.sending):
            done = self.view.advance(done)  # the filter may exclude the following entries
        if ack.written is not None and done.position != positions.COPY:
            done = replace(done, written=ack.written)
        return done if ack.sending is None else consumers.sending(done, ack.sending)

    def _session(self, consumer: Consumer, floor: int = 0) -> Session:
        """Return the session; read the floor of the log if *floor* is 0 and the cursor needs it."""
        if consumer.position is None and not floor:
            floor = self.view.floor(consumer.feed)
        return Session(consumer, positions.cursor(consumer.position, floor))

    # Methods for readers of the feed.

    def all(self, feed: str) -> Sequence[tuple[Consumer, Lag]]:
        stored = self.store.consumers(feed)
        if not stored:
            return []
        head, floor = self.view.reader.log.head(feed), self.view.floor(feed)
        return [(each, self._lag(each, head, floor)) for each in stored]

    def one(self, feed: str, name: str) -> tuple[Consumer, Lag]:
        """Return the consumer and its lag.

        Raises:
            InvalidConsumer, UnknownConsumer: the name is invalid, or unknown.
        """
        consumer = self.repository.consumer(feed, name)
        return consumer, self._lag(consumer, self.view.reader.log.head(feed), self.view.floor(feed))

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        """Return the parked messages.

        Raises:
            InvalidConsumer, UnknownConsumer: the name is invalid, or unknown.
        """
        self.repository.consumer(feed, name)
        return self.store.parked(feed, name)

    def _lag(self, consumer: Consumer, head: int, floor: int) -> Lag:
        handled = positions.last_unneeded_page(consumer.position)
        if handled is None:
            return Lag(head, 0)
        fell_off = positions.fell_off(consumer.position, floor)
        after = max(handled, floor - 1)
        run = self.view.reader.read_or_trimmed(consumer.feed, after, 1)
        fell_off = fell_off or run.trimmed
        waits = self.clock() - run.pages[0].at_ms if run.pages else 0
        return Lag(max(0, head - after), max(0, waits), fell_off)

    # Methods for operators.

    def register(
        self, feed: str, name: str, wanted: Consumer, start: str | None, *, only_new: bool = False
    ) -> tuple[Consumer, bool]:
        """Create the consumer or change its filter; return the consumer, and True if it is new.

        With *only_new*, refuse an existing consumer instead of changing it.

        *wanted* has the filter. A new consumer begins at *start*, see `place`; an existing consumer
        keeps its position. If the filter changes, the current worker loses its lease, because an
        acknowledgement by this worker would also cover messages that the old filter excluded.

        Raises:
            InvalidConsumer: a field breaks its rule, or the feed has too many consumers.
            ConsumerExists: the consumer exists, with *only_new*.
        """
        check_name(name)
        begin = self.position_of(feed, start or positions.OLDEST, "from")
        if self.store.consumer(feed, name) is None:
            fresh = replace(wanted, feed=feed, name=name, position=begin)
            self.check_room(feed)
            if self.store.write(feed, name, 0, Change(fresh)):
                return fresh, True
        if only_new:
            raise ConsumerExists("exists already", field="name", value=name)

        def refilter(consumer: Consumer) -> Change:
            other = replace(consumer, filter=wanted.filter)
            return Change(other if other == consumer else consumers.revoke_lease(other))

        return self.repository.change(feed, name, refilter), False

    def remove(self, feed: str, name: str, why: Reason) -> Consumer:
        """Delete the consumer and its parked messages; keep its notes."""
        note = self._note("delete", why)

        def change(consumer: Consumer) -> Change:
            return Change(None, note, drop=tuple(self._parked_ids(consumer)))

        return self.repository.change(feed, name, change)

    def pause(self, feed: str, name: str, why: Reason, *, paused: bool) -> Consumer:
        """Pause the consumer if *paused* is True; otherwise resume it and clear its failure.

        The pause begins after the current batch of the consumer's worker.

        Raises:
            NothingDone: the consumer is paused already, or was not paused.
        """
        word = "paused" if paused else "resumed"

        def change(consumer: Consumer) -> Change:
            if consumer.paused == paused:
                rule = "is paused already" if paused else "is not paused"
                raise NothingDone(rule, field="consumer", value=name)
            failure = consumer.failure if paused else None
            other = replace(consumer, paused=paused, failure=failure)
            return Change(other, self._note(word, why))

        return self.repository.change(feed, name, change)

    def mark(self, feed: str, name: str, target: str, why: Reason) -> Consumer:
        """Move the consumer forward or back to *target*, see `place`.

        A move forward acknowledges everything up to *target*. A move back sends everything after
        *target* again, and drops the parked messages after *target*. If a dropped message were sent
        later, it could restore an object that was deleted in the meantime.

        Raises:
            NothingDone: the consumer is already at *target*.
        """
        position = self.position_of(feed, target, "position")

        def change(consumer: Consumer) -> Change:
            note = self._note("mark", why, positions.encode_position(position) or positions.OLDEST)
            moved = consumers.move(consumer, position)
            if rank(position) > rank(consumer.position):
                return Change(moved, note)
            ids = self._parked_ids(consumer)
            beyond = [each for each in ids if rank(read(each)) > rank(position)]
            return Change(consumers.remove_parked(moved, beyond), note, drop=tuple(beyond))

        return self.repository.change(feed, name, change)

    def step(self, feed: str, name: str, why: Reason) -> Entry:
        """Acknowledge the next message without sending it, and return it.

        Raises:
            NothingDone: the consumer has no next message.
        """
        return self._past(feed, name, "step", why)

    def park(self, feed: str, name: str, why: Reason) -> Entry:
        """Set the next message aside with its error, and return it.

        Raises:
            NothingDone: the consumer has no next message.
            InvalidConsumer: too many messages are parked.
        """
        stored = self.repository.consumer(feed, name)
        if stored.parked >= limits.PARKED_MAX:
            rule = f"at most {limits.PARKED_MAX} messages are parked; retry or drop some first"
            raise InvalidConsumer(rule, field="consumer", value=name)
        return self._past(feed, name, "park", why, lambda entry: self._to_park(stored, entry, why))

    def retry(self, feed: str, name: str, which: str, why: Reason) -> Consumer:
        """Send the parked message *which* again, or all of them if *which* is `all`.

        Raises:
            UnknownParked: the message is not parked.
            NothingDone: a retry of the message was already requested, or no message is parked.
        """

        def change(consumer: Consumer) -> Change:
            chosen = _select(self._parked_ids(consumer), which)
            fresh = tuple(each for each in chosen if each not in consumer.retries)
            if not fresh:
                raise NothingDone("will already be sent again", field="id", value=which)
            retries = (*consumer.retries, *fresh)
            return Change(replace(consumer, retries=retries), self._note("retry", why, which))

        return self.repository.change(feed, name, change)

    def drop(self, feed: str, name: str, which: str, why: Reason) -> Consumer:
        """Delete the parked message *which*, or all parked messages if *which* is `all`.

        Raises:
            UnknownParked: the message is not parked.
            NothingDone: no message is parked.
        """

        def change(consumer: Consumer) -> Change:
            chosen = _select(self._parked_ids(consumer), which)
            left = consumers.remove_parked(consumer, chosen)
            return Change(left, self._note("drop", why, which), drop=tuple(chosen))

        return self.repository.change(feed, name, change)

    def position_of(self, feed: str, text: object, field: str) -> Position | None:
        """Return the position for *text*: `oldest` (None), `now`, `copy`, or the id of an event.

        Raises:
            InvalidConsumer: *text* is another value, or not an id of this feed.
        """
        if text == positions.OLDEST:
            return None
        if text == positions.COPIED:
            return positions.COPY
        if text == positions.NOW:
            return self.view.frontier(feed)
        try:
            position = positions.parse_position(text, field)
        except InvalidConsumer as error:
            rule = f"{error.rule}, or one of `oldest`, `now` and `copy`"
            raise InvalidConsumer(rule, field=field, value=text) from None
        self.view.check_reached(feed, position, field)
        return position

    def check_room(self, feed: str) -> None:
        """Check that the feed can have another consumer.

        Raises:
            InvalidConsumer: the feed already has the maximum number of consumers.
        """
        if len(self.store.consumers(feed)) >= limits.CONSUMERS_MAX:
            rule = f"a feed has at most {limits.CONSUMERS_MAX} named consumers"
            raise InvalidConsumer(rule, field="consumer")

    def _past(
        self,
        feed: str,
        name: str,
        what: str,
        why: Reason,
        parked: Callable[[Entry], Parked | None] = lambda entry: None,
    ) -> Entry:
        """Move past the next message; store the result of *parked* as a parked message if not None.

        The worker has to take the lease again.
        """
        met: list[Entry] = []

        def change(consumer: Consumer) -> Change:
            entry = self.view.upcoming(consumer)
            if entry is None:
                rule = "has no next message"
                raise NothingDone(rule, field="consumer", value=name)
            met[:] = [entry]
            confirmed = consumers.ack_entries(consumer, [entry.place])
            passed = self.view.advance(confirmed, limits.UPCOMING_READS_MAX)
            kept = parked(entry)
            new = kept is not None and kept.id not in self._parked_ids(consumer)
            left = replace(consumers.revoke_lease(passed), parked=passed.parked + new)
            return Change(left, self._note(what, why, entry.place.encode()), park=kept)

        self.repository.change(feed, name, change)
        return met[0]

    def _parked_ids(self, consumer: Consumer) -> list[str]:
        """Return the ids of the parked messages.

        If a later write of *consumer* with its version succeeds, these ids were still valid.
        """
        return [each.id for each in self.store.parked(consumer.feed, consumer.name)]

    def _to_park(self, stored: Consumer, entry: Entry, why: Reason) -> Parked:
        failure, name = stored.failure, entry.place.encode()
        met = failure is not None and failure.id in ("", name)
        error = failure.error if failure and met else why.why
        times = failure.times if failure and met else 1
        return Parked(name, entry.line, error, self.clock(), times)

    def _note(self, what: str, why: Reason, name: str = "") -> Note:
        return Note(self.clock(), why.who, what, why.why, name)


@dataclass(frozen=True, slots=True)
class ConsumerRetention:
    """The pages that consumers need. They are not trimmed until they are older than *cap*."""

    store: ConsumerStore
    cap: Retention

    def pages(self, feed: str) -> frozenset[int]:
        """Return the last page that each consumer has handled; leave out those before a copy."""
        handled = (
            positions.last_unneeded_page(each.position) for each in self.store.consumers(feed)
        )
        return frozenset(page for page in handled if page is not None)


@dataclass(frozen=True, slots=True)
class ConsumerMonitor:
    """The metrics of consumers.

    If the lag of a consumer exceeds *retention*, the log keeps pages only for this consumer.
    *observe* is called with each visited feed and the lags of its consumers.
    """

    consumers: Consumers
    retention: Retention
    count: Count
    observe: Callable[[str, Sequence[Lag]], object] = lambda feed, lags: None

    def run(self, feed: str) -> int | None:
        """Count the lag of the consumers of *feed*; return the time of the next visit."""
        lags = [lag for _, lag in self.consumers.all(feed)]
        self.observe(feed, lags)
        if lags:
            self.count("ConsumerLag", max(lag.pages for lag in lags))
            self.count("ConsumersLate", sum(lag.ms > self.retention.age_ms for lag in lags))
            self.count("ConsumersFellOff", sum(lag.fell_off for lag in lags))
        return NEXT_SWEEP if any(lag.pages or lag.fell_off for lag in lags) else None


def _select(parked: list[str], which: str) -> list[str]:
    """Return the ids among *parked* that *which* selects: one id, or all of them."""
    if which == ALL:
        if not parked:
            raise NothingDone("nothing is parked", field="id", value=which)
        return parked
    if which not in parked:
        raise UnknownParked("no such message is parked", field="id", value=which)
    return [which]


def _without(consumer: Consumer, retried: Sequence[str]) -> Consumer:
    if not retried:
        return consumer
    for each in retried:
        if each not in consumer.retries:
            rule = "is not a parked message to send again"
            raise UnknownParked(rule, field="retried", value=each)
    return consumers.remove_parked(consumer, set(retried))
