"""The state of a named consumer, the functions that change the state, and the store.

A worker receives the entries (lines of the log) for a consumer, and writes them to its own store.
Only one worker at a time does this: the holder of the consumer's lease, which a fence identifies.
Entries that a worker had begun to write when it failed or crashed are sent again, one at a time.
All functions are pure, and those that change a consumer return its next state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.consumers import position as positions
from tidings.core.consumers.position import join_spans, later, rank, spans_after
from tidings.core.effects import is_ahead
from tidings.core.errors import ConsumerHeld, FenceLost, InvalidConsumer, NothingDone
from tidings.core.model import filters
from tidings.core.model.cursors import Place, Replication, Since
from tidings.core.model.filters import ERASURES, EVERYTHING, FIELDS, Filter
from tidings.core.records import Kind, Layout, Records, Write, expected_version

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidings.core.consumers.position import Position, Spans
    from tidings.core.records import Codec, Fields, RecordStore


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a worker. *id* is the entry that could not be written; "" if unknown."""

    id: str = ""
    error: str = ""
    at_ms: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class Consumer:
    """The stored state of a named consumer.

    *filter* selects the operations to send; all others count as acknowledged. Everything up to
    *position* is acknowledged; None is the position before the first entry. The entries *acked*
    after the position are acknowledged, too. The worker has begun to write entries up to *sent*. An
    earlier worker, which did not finish, had begun to write entries up to *single*; these entries
    are sent again one at a time. A parked message is an entry that was set aside for an operator.
    *parked* is the number of parked messages, and *retries* has the ids of those to send again.
    *written* is the number that the worker has found in its own store with its last write. A write
    is rejected if the stored *version* has changed in the meantime.
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
    written: int = 0
    version: int = 0

    def is_held(self, now_ms: int) -> bool:
        return self.owner != "" and is_ahead(self.until_ms, now_ms, limits.CONSUMER_LEASE_MS)

    @property
    def copying(self) -> bool:
        """Return True while the consumer receives a copy of the state; the log follows after it."""
        return isinstance(self.position, Since | Replication)

    def state(self, now_ms: int) -> str:
        """Return the state in one word."""
        if self.paused:
            return "paused"
        if self.is_held(now_ms):
            return "working"
        return "failed" if self.failure else "idle"


@dataclass(frozen=True, slots=True)
class Parked:
    """A message that was set aside, and the error of its last attempt."""

    id: str
    line: str
    error: str
    at_ms: int
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Note:
    """The record of an action of an operator, which is not the note of a follower.

    *who* did *what*, and *why*. *id* is the entry or position concerned.
    """

    at_ms: int
    who: str = ""
    what: str = ""
    why: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """An atomic write. It stores *consumer*, or removes the consumer if *consumer* is None.

    The same write stores *note* and the parked message *park*, and deletes the parked messages with
    the ids *drop*.
    """

    consumer: Consumer | None
    note: Note | None = None
    park: Parked | None = None
    drop: tuple[str, ...] = ()


CONSUMERS = Kind("consumer", is_due=True)
PARKED, NOTES = Kind("parked"), Kind("note")
_POSITION: Codec = (positions.encode_position, positions.read)


class _ConsumerLayout(Layout[Consumer]):
    """The layout of consumers. Each value of the filter is a field of its own."""

    def encode(self, value: Consumer) -> dict[str, Any]:
        values: dict[str, Any] = {**dict.fromkeys(FIELDS), **value.filter.values()}
        return {**super().encode(value), **values, ERASURES: value.filter.erasures or None}

    def decode(self, found: Fields, feed: str = "", name: str = "") -> Consumer:
        of = filters.of({each: found.get(each) for each in FIELDS}, erasures=ERASURES in found)
        return replace(super().decode(found, feed, name), filter=of)


_CONSUMER = _ConsumerLayout(
    Consumer,
    {"until_ms": "lease_until"},
    {
        "position": _POSITION,
        "sent": _POSITION,
        "single": _POSITION,
        "acked": (positions.encode_spans, positions.decode_spans),
        "failure": Layout(Failure, {"at_ms": "at"}).nested,
    },
    feed="feed",
    name="name",
    without=("filter",),
)
_PARKED = Layout(Parked, {"at_ms": "at"}, name="id", always=("attempts",))
_NOTE = Layout(Note, {"at_ms": "at"})


class ConsumerStore:
    """The named consumers of each feed. Every read is strongly consistent, except for notes."""

    def __init__(self, records: RecordStore) -> None:
        self._consumers = Records(records, CONSUMERS, _CONSUMER)
        self._parked = Records(records, PARKED, _PARKED)
        self._notes = Records(records, NOTES, _NOTE)

    def consumer(self, feed: str, name: str) -> Consumer | None:
        """Return one consumer, or None if it does not exist."""
        return self._consumers.get(feed, name)

    def consumers(self, feed: str) -> Sequence[Consumer]:
        """Return all consumers of *feed*, sorted by name."""
        return [*self._consumers.all(feed)]

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        """Write *change* and return True if the stored version is *version*; otherwise False.

        A consumer that does not exist has version 0. The stored consumer gets `version + 1`, even
        if *change* contains another version.
        """
        if change.consumer is None:
            writes = [Write(CONSUMERS, name, None, expected_version(version))]
        else:
            writes = [self._consumers.put(replace(change.consumer, version=version), name)]
        note, is_new = change.note, not version
        if note is not None:
            at = f"{note.at_ms:014d}-{version:010d}"
            writes.append(self._notes.put(note, at, name, note.at_ms + limits.NOTE_MS))
        if change.park is not None:
            writes.append(self._parked.put(change.park, of=name))
        writes += [Write(PARKED, each, None, of=name) for each in change.drop]
        return self._consumers.store.write(feed, writes, mark=is_new or note is not None)

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        """Return the parked messages, sorted by id."""
        return [*self._parked.all(feed, name)]

    def rewrite_parked(self, feed: str, name: str, parked: Parked, changed: Parked) -> bool:
        """Replace the message *parked* with *changed*; see `RewriteStore`."""
        write = self._parked.put(changed, of=name)._replace(expected=_PARKED.encode(parked))
        if self._parked.store.write(feed, [write]):
            return True
        return self._parked.get(feed, parked.id, name) == changed

    def notes(self, feed: str, name: str) -> Sequence[Note]:
        """Return at most `limits.NOTES_MAX` notes, the latest first."""
        return [*self._notes.all(feed, name, limit=limits.NOTES_MAX, newest=True)]


def acquire(consumer: Consumer, worker: str, now_ms: int) -> Consumer:
    """Give the lease to *worker*, with a new fence.

    Raises:
        ConsumerHeld: another worker holds the lease.
    """
    if consumer.is_held(now_ms) and consumer.owner != worker:
        rule = f"is held by {consumer.owner} for {consumer.until_ms - now_ms} ms more"
        raise ConsumerHeld(rule, field="consumer", value=consumer.name)
    until_ms = now_ms + limits.CONSUMER_LEASE_MS
    held = replace(consumer, owner=worker, fence=consumer.fence + 1, until_ms=until_ms)
    return _mark_doubtful(held)


def check_fence(consumer: Consumer, fence: int) -> None:
    """Check that the worker with *fence* holds *consumer*.

    Raises:
        FenceLost: the worker no longer holds the consumer.
    """
    if not consumer.owner or consumer.fence != fence:
        rule = f"no longer holds the lease, now at fence {consumer.fence}; take the lease again"
        raise FenceLost(rule, field="fence", value=fence)


def renew(consumer: Consumer, now_ms: int) -> Consumer:
    """Renew the lease, even if it has expired, because no other worker has taken it since."""
    return replace(consumer, until_ms=now_ms + limits.CONSUMER_LEASE_MS)


def ack_through(consumer: Consumer, through: Position) -> Consumer:
    """Acknowledge everything up to *through*; never move back."""
    if rank(through) <= rank(consumer.position):
        return consumer
    acked = consumer.acked
    if isinstance(through, Place):
        acked = spans_after(acked, through)
    failure = consumer.failure if consumer.failure and consumer.failure.id else None
    return _drop_passed(replace(consumer, position=through, acked=acked, failure=failure))


def ack_entries(consumer: Consumer, entries: Sequence[Place]) -> Consumer:
    """Acknowledge *entries*, even if entries before them are not acknowledged.

    Raises:
        InvalidConsumer: the acknowledged entries after the position have too many gaps.
    """
    fresh = [each for each in entries if rank(each) > rank(consumer.position)]
    acked = join_spans(consumer.acked, fresh)
    if len(acked) > limits.CONSUMER_SPANS_MAX:
        rule = f"must be in at most {limits.CONSUMER_SPANS_MAX} ranges after the position"
        raise InvalidConsumer(rule, field="ids")
    failure = consumer.failure
    if failure and failure.id in {entry.encode() for entry in entries}:
        failure = None
    return replace(consumer, acked=acked, failure=failure)


def sending(consumer: Consumer, through: Position) -> Consumer:
    """Record that the worker is about to write entries up to *through*."""
    return replace(consumer, sent=later(consumer.sent, through))


def fail(consumer: Consumer, entry: str, error: str, now_ms: int) -> Consumer:
    """Release the lease after a failure; send unacknowledged entries again, one at a time."""
    before = consumer.failure
    again = before is not None and before.id == entry and entry != ""
    times = before.times + 1 if before and again else 1
    failure = Failure(entry, error[: limits.ERROR_CHARS_MAX], now_ms, times)
    return _mark_doubtful(replace(consumer, failure=failure, owner="", until_ms=0))


def release(consumer: Consumer) -> Consumer:
    """Release the lease of a worker that has written all its entries, so that none is repeated."""
    return _drop_passed(replace(consumer, sent=None, owner="", until_ms=0))


def move(consumer: Consumer, position: Position | None) -> Consumer:
    """Move to *position* for an operator. The worker has to take the lease again.

    A move forward acknowledges everything up to *position*. A move back sends everything after
    *position* again, so that the store of the worker may have lost it.

    Raises:
        NothingDone: the consumer is already at *position*.
    """
    if rank(position) == rank(consumer.position):
        raise NothingDone("is already the position of the consumer", field="position")
    ahead = rank(position) > rank(consumer.position)
    if ahead and isinstance(position, Place):
        return revoke_lease(ack_through(consumer, position))
    return place_at(consumer, position)


def place_at(consumer: Consumer, position: Position | None) -> Consumer:
    """Set *position* and revoke the lease.

    Entries after *position* that were sent or acknowledged are sent again.
    """
    fresh = replace(
        consumer, position=position, acked=(), sent=None, single=None, failure=None, written=0
    )
    return revoke_lease(fresh)


def remove_parked(consumer: Consumer, ids: Collection[str]) -> Consumer:
    """Remove the parked messages *ids*, and do not send them again."""
    return replace(not_retried(consumer, ids), parked=consumer.parked - len(ids))


def not_retried(consumer: Consumer, ids: Collection[str]) -> Consumer:
    """Do not send the messages *ids* again; parked messages stay parked."""
    return replace(consumer, retries=tuple(each for each in consumer.retries if each not in ids))


def revoke_lease(consumer: Consumer) -> Consumer:
    """Take the lease from the worker; its next request is refused."""
    return replace(consumer, owner="", until_ms=0, fence=consumer.fence + 1)


def _mark_doubtful(consumer: Consumer) -> Consumer:
    """Raise `single` to `sent`, so that unacknowledged entries are sent again one at a time."""
    return _drop_passed(replace(consumer, single=later(consumer.single, consumer.sent)))


def _drop_passed(consumer: Consumer) -> Consumer:
    """Remove each of `failure`, `sent` and `single` that the position has passed."""
    position = consumer.position
    failure = consumer.failure
    if failure and failure.id and rank(positions.read(failure.id)) <= rank(position):
        failure = None
    sent = consumer.sent if rank(consumer.sent) > rank(position) else None
    single = consumer.single if rank(consumer.single) > rank(position) else None
    return replace(consumer, failure=failure, sent=sent, single=single)
