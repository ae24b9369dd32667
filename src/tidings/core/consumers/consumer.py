"""
Named consumers: where each one stands, who works for it, and what became of what it was sent.

A consumer is read by one worker at a time: the holder of a lease, told apart from its
predecessors by a fence. What a worker was about to write when it failed or died comes again,
one at a time. All functions here are pure: from one consumer to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.consumers import ack_ranges
from tidings.core.consumers import position as positions
from tidings.core.consumers.position import later, rank
from tidings.core.deadlines import is_ahead
from tidings.core.errors import ConsumerHeld, FenceLost, InvalidConsumer, NothingDone
from tidings.core.model.cursors import Place, Replication, Since
from tidings.core.model.filters import EVERYTHING, Filter

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidings.core.consumers.ack_ranges import Spans
    from tidings.core.consumers.position import Position


@dataclass(frozen=True, slots=True)
class Failure:
    """*id* is of the entry that could not be written, empty where nobody knows which it was."""

    id: str
    error: str
    at_ms: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Consumer:
    """
    *filter*: what of the feed it is sent; the rest counts as acknowledged.
    *position*: everything up to it is acknowledged; None: nothing ever was. *acked* is what is
    acknowledged above it. A worker has begun to write what lies up to *sent*; what lies up to
    *single* was begun by one that did not finish, and is sent one at a time. *retries* are ids
    of parked messages that are to be sent again. *version* guards every write.
    """

    feed: str
    name: str
    filter: Filter = EVERYTHING
    position: Position | None = None
    acked: Spans = ()
    sent: Position | None = None
    single: Position | None = None
    retries: tuple[str, ...] = ()
    parked: int = 0
    failure: Failure | None = None
    paused: bool = False
    owner: str = ""
    fence: int = 0
    until_ms: int = 0
    version: int = 0

    def held(self, now_ms: int) -> bool:
        return self.owner != "" and is_ahead(self.until_ms, now_ms, limits.CONSUMER_LEASE_MS)

    @property
    def copying(self) -> bool:
        """Whether it has not been sent every object yet, so that the log comes later."""
        return isinstance(self.position, Since | Replication)

    def state(self, now_ms: int) -> str:
        """What it does, in one word."""
        if self.paused:
            return "paused"
        if self.held(now_ms):
            return "working"
        return "failed" if self.failure else "idle"


@dataclass(frozen=True, slots=True)
class Parked:
    """A message that was put aside with the reason why it could not be written."""

    id: str
    line: str
    error: str
    at_ms: int
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Note:
    """What an operator did to a consumer. *id* is the entry or position that it was about."""

    at_ms: int
    who: str
    what: str
    why: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What is written together or not at all; without *consumer* it is removed."""

    consumer: Consumer | None
    note: Note | None = None
    park: Parked | None = None
    drop: tuple[str, ...] = ()


def taken(consumer: Consumer, worker: str, now_ms: int) -> Consumer:
    """
    Held by *worker* from now on, with a fence of its own.

    Raises:
        ConsumerHeld: by another one.
    """
    if consumer.held(now_ms) and consumer.owner != worker:
        rule = f"is held by {consumer.owner} for {consumer.until_ms - now_ms} ms more"
        raise ConsumerHeld(rule, field="consumer", value=consumer.name)
    until_ms = now_ms + limits.CONSUMER_LEASE_MS
    held = replace(consumer, owner=worker, fence=consumer.fence + 1, until_ms=until_ms)
    return _doubted(held)


def check_fence(consumer: Consumer, fence: int) -> None:
    """
    Raises:
        FenceLost: the worker with *fence* holds *consumer* no more.
    """
    if not consumer.owner or consumer.fence != fence:
        rule = f"holds no more, it is {consumer.fence} now; take the lease again"
        raise FenceLost(rule, field="fence", value=fence)


def renewed(consumer: Consumer, now_ms: int) -> Consumer:
    """A holder that was late may go on if nobody took over."""
    return replace(consumer, until_ms=now_ms + limits.CONSUMER_LEASE_MS)


def passed(consumer: Consumer, through: Position) -> Consumer:
    """Everything up to *through* is acknowledged; what is behind already stays so."""
    if rank(through) <= rank(consumer.position):
        return consumer
    acked = consumer.acked
    if isinstance(through, Place):
        acked = ack_ranges.above(acked, through)
    failure = consumer.failure if consumer.failure and consumer.failure.id else None
    return _settled(replace(consumer, position=through, acked=acked, failure=failure))


def confirmed(consumer: Consumer, entries: Sequence[Place]) -> Consumer:
    """
    *entries* are acknowledged, whatever lies before them.

    Raises:
        InvalidConsumer: too much is acknowledged beyond the first that is not.
    """
    fresh = [each for each in entries if rank(each) > rank(consumer.position)]
    acked = ack_ranges.joined(consumer.acked, fresh)
    if len(acked) > limits.CONSUMER_SPANS_MAX:
        rule = f"at most {limits.CONSUMER_SPANS_MAX} stretches may be acknowledged beyond a gap"
        raise InvalidConsumer(rule, field="ids")
    failure = consumer.failure
    if failure and failure.id in {entry.encode() for entry in entries}:
        failure = None
    return replace(consumer, acked=acked, failure=failure)


def sending(consumer: Consumer, through: Position) -> Consumer:
    """Its worker is about to write what lies up to *through*."""
    return replace(consumer, sent=later(consumer.sent, through))


def failed(consumer: Consumer, entry: str, error: str, now_ms: int) -> Consumer:
    """Let go; what was sent and is not acknowledged comes again, one at a time."""
    before = consumer.failure
    again = before is not None and before.id == entry and entry != ""
    times = before.times + 1 if before and again else 1
    failure = Failure(entry, error[: limits.ERROR_CHARS_MAX], now_ms, times)
    return _doubted(replace(consumer, failure=failure, owner="", until_ms=0))


def released(consumer: Consumer) -> Consumer:
    """Let go by a worker that has finished: nothing is in doubt."""
    return _settled(replace(consumer, sent=None, owner="", until_ms=0))


def moved(consumer: Consumer, position: Position | None) -> Consumer:
    """
    Put to *position*, forward or back, by an operator. Its worker has to take the lease again.

    Forward everything before it is acknowledged; back everything behind it comes again.

    Raises:
        NothingDone: it stands there.
    """
    if rank(position) == rank(consumer.position):
        raise NothingDone("stands there already", field="position")
    ahead = rank(position) > rank(consumer.position)
    if ahead and isinstance(position, Place):
        return unheld(passed(consumer, position))
    fresh = replace(consumer, position=position, acked=(), sent=None, single=None, failure=None)
    return unheld(fresh)


def unparked(consumer: Consumer, ids: Collection[str]) -> Consumer:
    """Without the parked messages *ids*, nor are they sent again."""
    return replace(not_retried(consumer, ids), parked=consumer.parked - len(ids))


def not_retried(consumer: Consumer, ids: Collection[str]) -> Consumer:
    """The messages *ids* are not sent again; what is parked stays parked."""
    return replace(consumer, retries=tuple(each for each in consumer.retries if each not in ids))


def unheld(consumer: Consumer) -> Consumer:
    """Taken from its worker, whose next word is refused."""
    return replace(consumer, owner="", until_ms=0, fence=consumer.fence + 1)


def _doubted(consumer: Consumer) -> Consumer:
    """What was begun and is not acknowledged comes one at a time."""
    return _settled(replace(consumer, single=later(consumer.single, consumer.sent)))


def _settled(consumer: Consumer) -> Consumer:
    """Without what the position has passed."""
    position = consumer.position
    failure = consumer.failure
    if failure and failure.id and rank(positions.read(failure.id)) <= rank(position):
        failure = None
    sent = consumer.sent if rank(consumer.sent) > rank(position) else None
    single = consumer.single if rank(consumer.single) > rank(position) else None
    return replace(consumer, failure=failure, sent=sent, single=single)
