"""
Overseeing: what operators do to named consumers, each with who did it, when and why.

Everything is safe while workers run: it is one conditional write, and a worker that was
overtaken learns so with its next acknowledgement. What would change nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers import position as positions
from tidings.core.consumers.consumer import Change, Consumer, Note, Parked
from tidings.core.consumers.position import rank, read
from tidings.core.consumers.repository import check_name
from tidings.core.errors import InvalidConsumer, NothingDone, UnknownParked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.consumers.log_view import Entry, LogView
    from tidings.core.consumers.position import Position
    from tidings.core.consumers.repository import Book
    from tidings.core.consumers.stores import ConsumerShelf
    from tidings.core.effects import Clock

ALL = "all"


@dataclass(frozen=True, slots=True)
class Reason:
    """Who asks, and why; both are kept."""

    who: str
    why: str


def reason_from(who: str, why: object) -> Reason:
    """
    Raises:
        InvalidConsumer: no reason, or a long one.
    """
    if not isinstance(why, str) or not why.strip() or len(why) > limits.WHY_CHARS_MAX:
        rule = f"must say why in 1 to {limits.WHY_CHARS_MAX} characters; it is kept"
        raise InvalidConsumer(rule, field="why", value=why)
    return Reason(who[: limits.WORKER_CHARS_MAX], why.strip())


@dataclass(frozen=True, slots=True)
class Overseer:
    book: Book
    view: LogView
    shelf: ConsumerShelf
    clock: Clock

    def register(
        self, feed: str, name: str, wanted: Consumer, start: str | None
    ) -> tuple[Consumer, bool]:
        """
        The consumer as it is afterwards, and whether it is new.

        *wanted* has its filter. A new one begins at *start*, see `place`; one that is there gets
        the filter and stays where it is. A worker that reads with another filter is refused from
        then on: what it acknowledges would cover messages that it was not sent.

        Raises:
            InvalidConsumer: a field breaks its rule, or the feed has too many consumers.
        """
        check_name(name)
        begin = self.place(feed, start or positions.OLDEST, "from")
        standing = self.book.store.consumer(feed, name)
        if standing is None:
            fresh = replace(wanted, feed=feed, name=name, position=begin)
            self.check_room(feed)
            if self.book.store.write(feed, name, 0, Change(fresh)):
                return fresh, True

        def refilter(consumer: Consumer) -> Change:
            other = replace(consumer, filter=wanted.filter)
            return Change(other if other == consumer else consumers.unheld(other))

        return self.book.change(feed, name, refilter), False

    def remove(self, feed: str, name: str, why: Reason) -> Consumer:
        """Forget where it stands and what is parked; the notes stay. Anew, it begins anew."""
        note = self._note("delete", why)

        def change(consumer: Consumer) -> Change:
            return Change(None, note, drop=tuple(self._names(consumer)))

        return self.book.change(feed, name, change)

    def pause(self, feed: str, name: str, why: Reason, *, paused: bool) -> Consumer:
        """
        Its worker finishes what it has begun, and waits; or goes on, as if nothing had failed.

        Raises:
            NothingDone: it is so already.
        """
        word = "paused" if paused else "resumed"

        def change(consumer: Consumer) -> Change:
            if consumer.paused == paused:
                rule = "is paused already" if paused else "is not paused"
                raise NothingDone(rule, field="consumer", value=name)
            failure = consumer.failure if paused else None
            other = replace(consumer, paused=paused, failure=failure)
            return Change(other, self._note(word, why))

        return self.book.change(feed, name, change)

    def mark(self, feed: str, name: str, target: str, why: Reason) -> Consumer:
        """
        Put it to *target*, see `place`: forward acknowledges, back has everything sent again.

        Back, what is parked behind it is parked no more: it comes again in its turn, or a copy
        tells what became of its object. Sent later, it would bring back what was deleted since.

        Raises:
            NothingDone: it stands there.
        """
        position = self.place(feed, target, "position")

        def change(consumer: Consumer) -> Change:
            note = self._note("mark", why, positions.encoded(position) or positions.OLDEST)
            moved = consumers.moved(consumer, position)
            if rank(position) > rank(consumer.position):
                return Change(moved, note)
            beyond = [each for each in self._names(consumer) if rank(read(each)) > rank(position)]
            return Change(consumers.unparked(moved, beyond), note, drop=tuple(beyond))

        return self.book.change(feed, name, change)

    def step(self, feed: str, name: str, why: Reason) -> Entry:
        """
        Acknowledge the next message without sending it; the message.

        Raises:
            NothingDone: there is none.
        """
        return self._past(feed, name, "step", why)

    def park(self, feed: str, name: str, why: Reason) -> Entry:
        """
        Put the next message aside, with the error that it met; the message.

        Raises:
            NothingDone: there is none.
            InvalidConsumer: too many are put aside.
        """
        standing = self.book.consumer(feed, name)
        if standing.parked >= limits.PARKED_MAX:
            rule = f"at most {limits.PARKED_MAX} messages are parked; retry or drop some first"
            raise InvalidConsumer(rule, field="consumer", value=name)
        return self._past(feed, name, "park", why, lambda each: self._parked(standing, each, why))

    def retry(self, feed: str, name: str, which: str, why: Reason) -> Consumer:
        """
        Have a parked message sent again, or `all`.

        Raises:
            UnknownParked: it is not parked.
            NothingDone: it is to be sent again already, or there is none.
        """

        def change(consumer: Consumer) -> Change:
            chosen = _chosen(self._names(consumer), which)
            fresh = tuple(each for each in chosen if each not in consumer.retries)
            if not fresh:
                raise NothingDone("is to be sent again already", field="id", value=which)
            retries = (*consumer.retries, *fresh)
            return Change(replace(consumer, retries=retries), self._note("retry", why, which))

        return self.book.change(feed, name, change)

    def drop(self, feed: str, name: str, which: str, why: Reason) -> Consumer:
        """
        Give up a parked message, or `all`; the note stays.

        Raises:
            UnknownParked: it is not parked.
            NothingDone: there is none.
        """

        def change(consumer: Consumer) -> Change:
            chosen = _chosen(self._names(consumer), which)
            left = consumers.unparked(consumer, chosen)
            return Change(left, self._note("drop", why, which), drop=tuple(chosen))

        return self.book.change(feed, name, change)

    def place(self, feed: str, text: object, field: str) -> Position | None:
        """
        `oldest` (None), `now`, `copy`, or the id of an event.

        Raises:
            InvalidConsumer: none of them, or not of this feed.
        """
        if text == positions.OLDEST:
            return None
        if text == positions.COPIED:
            return positions.COPY
        if text == positions.NOW:
            return self.view.frontier(feed)
        try:
            position = positions.given(text, field)
        except InvalidConsumer as error:
            rule = f"{error.rule}, or one of oldest, now, copy"
            raise InvalidConsumer(rule, field=field, value=text) from None
        self.view.check_reached(feed, position, field)
        return position

    def _past(
        self,
        feed: str,
        name: str,
        what: str,
        why: Reason,
        parked: Callable[[Entry], Parked | None] = lambda entry: None,
    ) -> Entry:
        """Behind the next message, which is *parked* or not; its worker begins anew."""
        met: list[Entry] = []

        def change(consumer: Consumer) -> Change:
            entry = self.view.upcoming(consumer)
            if entry is None:
                rule = "has no message before it"
                raise NothingDone(rule, field="consumer", value=name)
            met[:] = [entry]
            confirmed = consumers.confirmed(consumer, [entry.place])
            passed = self.view.advanced(confirmed, limits.UPCOMING_READS_MAX)
            kept = parked(entry)
            new = kept is not None and kept.id not in self._names(consumer)
            left = replace(consumers.unheld(passed), parked=passed.parked + new)
            return Change(left, self._note(what, why, entry.place.encode()), park=kept)

        self.book.change(feed, name, change)
        return met[0]

    def _names(self, consumer: Consumer) -> list[str]:
        """What is parked now; read behind *consumer*, whose version says if it still holds."""
        return [each.id for each in self.shelf.parked(consumer.feed, consumer.name)]

    def _parked(self, standing: Consumer, entry: Entry, why: Reason) -> Parked:
        failure, name = standing.failure, entry.place.encode()
        met = failure is not None and failure.id in ("", name)
        error = failure.error if failure and met else why.why
        return Parked(
            name, entry.line, error, self.clock(), failure.times if failure and met else 1
        )

    def check_room(self, feed: str) -> None:
        """
        Raises:
            InvalidConsumer: the feed has as many as it may have.
        """
        if len(self.book.store.consumers(feed)) >= limits.CONSUMERS_MAX:
            rule = f"a feed has at most {limits.CONSUMERS_MAX} named consumers"
            raise InvalidConsumer(rule, field="consumer")

    def _note(self, what: str, why: Reason, name: str = "") -> Note:
        return Note(self.clock(), why.who, what, why.why, name)


def _chosen(parked: list[str], which: str) -> list[str]:
    """
    Raises:
        UnknownParked, NothingDone: *which* is not among *parked*, or there are none.
    """
    if which == ALL:
        if not parked:
            raise NothingDone("nothing is parked", field="id", value=which)
        return parked
    if which not in parked:
        raise UnknownParked("no such message is parked", field="id", value=which)
    return [which]
