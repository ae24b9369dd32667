"""The fate of every message that a named consumer is owed, recorded outside of the feed.

The ledger checks each write of a consumer: a message that a position or an acknowledgement newly
covers must have been written to the consumer's store by the worker with that fence, or be named by
the note of an operator. Workers report the messages that they leased and wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.faults import Faults
from tests.simulation.model import DELETED, PAGE_END, Broken, Log, Op, Position, Wanted
from tests.simulation.model import Place as Id
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.consumers.service import Acknowledgement, Session
from tidings.core.model.cursors import Place, Replication

NOWHERE: Position = (-1, 0)  # before a copy has begun
NEVER: Position = (-2, 0)  # nothing was ever acknowledged


def at_of(position: object) -> Position:
    """Return a consumer's position in the log; within a copy, the page before its continuation."""
    match position:
        case Place(page, slot, _):
            return page, slot
        case Replication(_, page, _, _):
            return page, PAGE_END
        case None:
            return NEVER
    return NOWHERE


def wanted_by(consumer: Consumer) -> Wanted:
    return Wanted(consumer.filter.types, consumer.filter.parents)


def _acked(consumer: Consumer, at: Position) -> bool:
    spans = ((span.page, span.first, span.last) for span in consumer.acked)
    return any(page == at[0] and first <= at[1] <= last for page, first, last in spans)


@dataclass
class Reading:
    """The reads of one fence: the next message is the first after *behind*; None: unknown."""

    consumer: Consumer
    begin: Position | None
    behind: Position | None
    copying: bool


class Ledger:
    """*floor* is that of the log now, *faults* counts what faults led to."""

    def __init__(self, name: str, log: Log, floor: Callable[[], int], faults: Faults) -> None:
        self.name, self.log, self.floor, self.saw = name, log, floor, faults.saw
        self.fence = 0  # the highest that the store has met
        self.readings: dict[int, Reading] = {}
        self.written: defaultdict[int, set[Position]] = defaultdict(set)  # by fence
        self.said: defaultdict[int, set[Position]] = defaultdict(set)  # acknowledged, of those
        self.again: set[str] = set()  # parked messages that were written since they were parked
        self.begun: dict[Position, int] = {}  # what some fence began to write, until it is covered
        self.skipped: set[Position] = set()  # by a note of an operator
        self.parked: set[str] = set()
        self.objects: dict[tuple[str, str], tuple[Position, dict[str, Any] | None]] = {}
        self.first = NEVER  # the furthest that a holder has written first
        self.whole = False  # its store began with a copy that nothing interrupted

    # --- called by workers ------------------------------------------------------------------------

    def leased(self, session: Session) -> None:
        """Raises:
        Broken: messages that a worker began to write would be delivered in bulk again.
        """
        consumer, cursor = session.consumer, Id.of(session.cursor.rjust(24, "0"))
        begin = None if session.cursor == "0" else (cursor.page, PAGE_END)
        if begin is not None and not cursor.replicates:
            begin = cursor.at
        copying = not isinstance(consumer.position, Place | None)
        self.readings[consumer.fence] = Reading(consumer, begin, begin, copying)
        single, wanted = at_of(consumer.single), wanted_by(consumer)
        for at, fence in self.begun.items():
            op = self.log.op(at)
            due = at > at_of(consumer.position) and not _acked(consumer, at)
            if op and wanted.matches(op) and fence < consumer.fence and due and at > single:
                raise Broken(f"{self.name}: {at} was begun by {fence}, comes in bulk to {single}")

    def begins(self, fence: int, id: str, name: str, *, holds: bool) -> bool:
        """Note that a worker writes a message to the store, which refuses a worker known as
        overtaken.

        *holds*: the worker was not overtaken.

        Raises:
            Broken: it is not the next one.
        """
        if fence < self.fence:
            self.saw("store refused a zombie")
            return False
        self.fence = fence
        reading, place = self.readings[fence], Id.of(id.rjust(24, "0"))
        if name == "reset" or place.replicates:
            self._check_copying(reading, name)
            reading.behind = (place.page, PAGE_END) if place.replicates else None
            reading.begin = reading.behind
            return True
        self._check_next(reading, place.at)
        reading.behind = place.at
        if holds:
            self.begun[place.at] = fence
        return True

    def writes(self, fence: int, id: str, name: str, data: dict[str, Any], *, holds: bool) -> None:
        """Note that the store has the message now."""
        if name == "reset":
            self.objects.clear()
            self.whole = True
            return
        place = Id.of(id)
        at = (place.page, PAGE_END) if place.replicates else place.at
        self.saw("message came again", self._known(at) and not place.replicates)
        if holds and not place.replicates:
            self._check_order(at)
        self.written[fence].add(at)
        self._keep(at, name, data)

    def says(self, fence: int, said: Acknowledgement) -> None:
        """Check a worker's next acknowledgement; only its own writes count."""
        ids = {(each.page, each.slot) for each in said.ids}
        through = NEVER if said.through is None else at_of(said.through)
        self.said[fence] |= {at for at in self.written[fence] if at <= through or at in ids}

    def writes_again(self, id: str, name: str, data: dict[str, Any]) -> None:
        """Note that the store has a parked message, out of turn."""
        self.again.add(id)
        self._keep(Id.of(id).at, name, data)

    def _keep(self, at: Position, name: str, data: dict[str, Any]) -> None:
        key = data["type"], data["id"]
        if at >= self.objects.get(key, (NEVER, None))[0]:
            self.objects[key] = at, DELETED if name == "delete" else data

    def _known(self, at: Position) -> bool:
        return any(at in written for written in self.written.values())

    def _check_order(self, at: Position) -> None:
        if not self._known(at):
            if at < self.first:
                raise Broken(f"{self.name}: {at} came first after {self.first}")
            self.first = at

    def _check_copying(self, reading: Reading, name: str) -> None:
        """Check that only a consumer that asked for a copy receives one."""
        if not reading.copying:
            stood = reading.consumer.position
            raise Broken(f"{self.name} stood at {stood}, and is told {name} of a copy")

    def _check_next(self, reading: Reading, at: Position) -> None:
        if reading.behind is None:  # a copy without rows
            return
        wanted = wanted_by(reading.consumer)
        for op in self.log.ops[self.log.after(reading.behind) : self.log.index(at)]:
            if wanted.matches(op) and not _acked(reading.consumer, op.at):
                raise Broken(f"{self.name} was sent {at}, and not {op.at} before it")

    # --- called by the stores of consumers --------------------------------------------------------

    def changed(self, old: Consumer, change: Change) -> None:
        """Raises:
        Broken: an acknowledged message was not written, and no note names it.
        """
        new, note = change.consumer, change.note
        assert new is not None
        self._shelve(change)
        if note and note.what == "mark":
            self._mark(old, new)
            return
        if at_of(new.position) < at_of(old.position):
            raise Broken(f"{self.name} went back from {old.position} to {new.position}")
        noted = Id.of(note.id).at if note and note.what in ("step", "park") else None
        for op in self._covered(old, new):
            if op.at == noted:
                self.skipped.add(op.at)
                self.saw("message was stepped over", note is not None and note.what == "step")
            elif op.at not in self.said[old.fence]:
                raise Broken(f"{self.name}: {op} is passed, {old.fence} did not acknowledge it")
            self.begun.pop(op.at, None)

    def _covered(self, old: Consumer, new: Consumer) -> Iterator[Op]:
        """Yield the matching operations that *new* acknowledges and *old* did not."""
        wanted, at = wanted_by(old), at_of(new.position)
        last = max([at, *((span.page, span.last) for span in new.acked)])
        for op in self.log.ops[self.log.after(self._behind(old, new)) : self.log.after(last)]:
            done = op.at <= at or _acked(new, op.at)
            if done and not _acked(old, op.at) and wanted.matches(op):
                yield op

    def _behind(self, old: Consumer, new: Consumer) -> Position:
        """Up to where nothing is owed: by rows of a copy, or because the log begins there."""
        if isinstance(old.position, Place):
            return at_of(old.position)
        reading = self.readings.get(old.fence)
        begin = reading.begin if reading else None
        if old.position is None:
            return max(begin or NEVER, (self.floor() - 1, PAGE_END))
        return max(begin or at_of(new.position), at_of(old.position))

    def _mark(self, old: Consumer, new: Consumer) -> None:
        before, after = at_of(old.position), at_of(new.position)
        self.begun.clear()
        if not isinstance(old.position, Place) or not isinstance(new.position, Place):
            self.whole = False
        if after > before:
            self.saw("consumer was marked forward")
            wanted = wanted_by(old)
            ops = self.log.ops[self.log.after(before) : self.log.after(after)]
            self.skipped |= {op.at for op in ops if wanted.matches(op) and not _acked(old, op.at)}
            return
        self.saw("consumer was marked back")
        self.first = NEVER
        self.written.clear()
        self.skipped = {at for at in self.skipped if at <= after}

    def refiltered(self) -> None:
        """Note that from now on it receives a different selection of messages."""
        self.first, self.whole = NEVER, False
        self.saw("filter was changed")

    def _shelve(self, change: Change) -> None:
        marked = change.note is not None and change.note.what == "mark"
        for id in change.drop:
            if change.note is None and id not in self.again:
                raise Broken(f"{self.name}: the parked {id} was removed, but was not written")
            self.saw("parked message was written", id in self.again)
            self.saw("parked message comes again", marked)
            self.parked.discard(id)
            self.skipped.add(Id.of(id).at)
        if change.park is not None:
            self.saw("message was parked", change.park.id not in self.parked)
            self.saw("parked message failed again", change.park.id in self.parked)
            self.parked.add(change.park.id)
            self.again.discard(change.park.id)

    # --- at rest ---------------------------------------------------------------------------------

    def check(self, consumer: Consumer, parked: set[str]) -> None:
        """Check that nothing is due, no parked message is lost, and the store is complete."""
        wanted = wanted_by(consumer)
        if self.parked != parked or consumer.parked != len(parked):
            raise Broken(f"{self.name} parked {self.parked}, there is {parked}")
        for op in self.log.ops[self.log.after(at_of(consumer.position)) :]:
            if wanted.matches(op) and not _acked(consumer, op.at):
                raise Broken(f"{self.name} is still due {op.at}, but is at {consumer.position}")
        if self.whole:
            self._check_objects(wanted)

    def _check_objects(self, wanted: Wanted) -> None:
        last = self.log.latest(Wanted())
        for key, op in self.log.latest(wanted).items():
            if op is not last[key] or op.at in self.skipped:
                continue
            expected = DELETED if op.event == "delete" else op.data
            found = self.objects.get(key, (NEVER, DELETED))[1]
            if found != expected:
                raise Broken(f"{self.name}: {key} is {found}, the log's last is {op}")
