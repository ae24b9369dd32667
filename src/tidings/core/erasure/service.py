"""Accept requests for erasures, and report their progress for each location of the data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.erasure.records import Phase, erasure_of
from tidings.core.errors import InvalidOperation, TidingsError, Unavailable
from tidings.core.ingest.write_bounds import CurrentObjects
from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.core.model.operations import Operation, event_of, is_erasure, object_key, parse_line
from tidings.core.state.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.auth.keys import KeyStore
    from tidings.core.consumers.consumer import Consumer, ConsumerStore
    from tidings.core.effects import Runtime
    from tidings.core.erasure.records import Erasure, ErasureStore, Ledger
    from tidings.core.ingest.write_bounds import ParentBoundCheck
    from tidings.core.log.append import Appender
    from tidings.core.model.pages import Page


Status = Literal["done", "pending", "outside"]


@dataclass(frozen=True, slots=True)
class Location:
    """One location of the erased data.

    *status* is `done`, `pending` (until *until_ms*, or until the job has run if that is 0), or
    `outside` if Tidings cannot erase the data. *note* says in one sentence what that means.
    """

    name: str
    status: Status
    note: str
    until_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReporter:
    """The reports on erasures.

    *archives* is True if the deployment has an archive. *file_rewritten_ms* is the time at which
    its database file was last rewritten without its free space, 0 if never; None without a file.
    The tables can be restored to any time in the last *recovery_ms*.
    """

    consumers: ConsumerStore
    keys: KeyStore
    runtime: Runtime
    archives: bool = False
    file_rewritten_ms: int | None = None
    recovery_ms: int = 0

    def locations(self, feed: str, erasure: Erasure) -> Sequence[Location]:
        """Return the status of *erasure* for each location of the data."""
        return [*self._stored(erasure), *self._others(feed, erasure)]

    def _stored(self, erasure: Erasure) -> Sequence[Location]:
        """Return the locations that the job erases."""
        counts = f"{erasure.entries} entries on {erasure.pages} pages"
        if erasure.reached(Phase.KEPT) and not erasure.has_found:
            counts += "; nothing was found: check type and id, or the data were erased before"
        texts = "errors of workers, labels and bounds of ended keys, and names of durable streams"
        found = [
            _step("log", erasure.reached(Phase.PARKED), counts),
            _step("state", True, "the object's row is a tombstone without its data"),
            _step("removed parents", erasure.reached(Phase.PARKED), "of the same pages"),
            _step("parked messages", erasure.reached(Phase.ARCHIVE), f"{erasure.parked} messages"),
            _step("texts", erasure.reached(Phase.ARCHIVE), f"{erasure.texts} of {texts}"),
        ]
        if erasure.as_parent:
            note = f"{erasure.corrected} objects have lost the parent"
            found.append(_step("parents", erasure.reached(Phase.WAITING), note))
        if self.archives:
            note = f"{erasure.parts} parts rewritten"
            found.append(_step("archive", erasure.reached(Phase.SPACE), note))
        if self.file_rewritten_ms is not None:
            note = "free pages of the database file, and its write-ahead log"
            found.append(_step("free space", erasure.reached(Phase.KEPT), note))
            note = "copies in partly filled pages are removed when the server starts the next time"
            is_rewritten = 0 < erasure.done_ms <= self.file_rewritten_ms
            found.append(_step("database file", is_rewritten, note))
        note = "the erasure entry and the tombstone have the type, the id and the parents"
        kept: Status = "done" if erasure.phase is Phase.DONE else "pending"
        found.append(Location("erasure entry", kept, note, erasure.until_ms))
        return found

    def _others(self, feed: str, erasure: Erasure) -> Sequence[Location]:
        consumers = self.consumers.consumers(feed)
        behind = sorted(
            consumer.name
            for consumer in consumers
            if position.rank(consumer.position) < position.rank(erasure.place)
        )
        note = f"not acknowledged by: {', '.join(behind)}" if behind else "all have acknowledged it"
        return [
            Location("named consumers", "pending" if behind else "done", note),
            self._filters(feed, erasure, consumers),
            Location("copies", "outside", "each copy erases its own data and reports it"),
            Location("tables", "outside", "the lake's job removes the rows from its tables"),
            self._exports(erasure),
            Location("backups", "outside", "backups made before the erasure have the data"),
            *([self._recovery(erasure)] if self.recovery_ms else []),
        ]

    def _filters(self, feed: str, erasure: Erasure, consumers: Sequence[Consumer]) -> Location:
        if erasure.phase is Phase.DONE:
            return Location("filters", "outside", "not known, because the id was erased")
        names = [f"consumer {each.name}" for each in consumers if erasure.is_named(each.filter)]
        for key in self.keys.keys(feed):
            if erasure.is_named(key.bound, key.label):
                names.append(f"key {key.id}")
        if not names:
            note = "no filter of a consumer or webhook, and no key, names the object"
            return Location("filters", "done", note)
        remedy = "change or delete consumers and webhooks, revoke keys"
        some = ", ".join(names[: limits.FILTERS_NAMED])
        return Location("filters", "outside", f"{len(names)} name the object; {remedy}: {some}")

    def _recovery(self, erasure: Erasure) -> Location:
        until_ms = erasure.done_ms + self.recovery_ms if erasure.done_ms else 0
        is_over = 0 < until_ms <= self.runtime.clock()
        note = "the tables can be restored to a time before the erasure"
        return Location("point-in-time recovery", "done" if is_over else "pending", note, until_ms)

    def _exports(self, erasure: Erasure) -> Location:
        if self.file_rewritten_ms is not None:
            return Location("exports", "outside", "remove plans and dumps of syncs yourself")
        # A deployment without a file of its own is a stage, with a bucket for syncs.
        until_ms = erasure.requested_ms + limits.SYNC_FILES_GONE_MS
        status: Status = "done" if until_ms <= self.runtime.clock() else "pending"
        note = (
            "files of syncs in the buckets of the stage; remove all other plans and dumps yourself"
        )
        return Location("exports", status, note, until_ms)


def _step(name: str, is_done: bool, note: str) -> Location:
    return Location(name, "done" if is_done else "pending", note)


class _ObjectMoved(TidingsError):
    """The object has changed since the request read it."""


class _LatestOperation(CurrentObjects):
    """The latest operation of the object *key*. It implements `Precondition` after `pin`.

    *at* and *line* are the position and the line; *line* is "" if the object is unknown.
    """

    def __init__(self, stores: ParentBoundCheck, feed: str, key: str) -> None:
        super().__init__(stores, feed, [key])
        self.at, self.line = (0, 0), ""
        self._pinned = (0, 0)

    def pin(self) -> None:
        """Require that the object stays at the current position."""
        self._pinned = self.at

    def _see(self, key: str, line: str, at: tuple[int, int]) -> None:
        if at >= self.at:
            self.at, self.line = at, line

    def _decide(self) -> None:
        if self.at != self._pinned:
            raise _ObjectMoved(f"{self._feed}: the object changed during the request")


@dataclass(frozen=True, slots=True)
class Erasures:
    """The erasures of feeds, as clients request and see them. The caller has authorized the client.

    *current* are the stores that have an object's latest operation. *ledger* has the erasures that
    a restored log may lack.
    """

    appender: Appender
    current: ParentBoundCheck
    store: ErasureStore
    runtime: Runtime
    ledger: Ledger | None = None

    def request(self, feed: str, entry: Entry, key: str | None = None) -> Erasure:
        """Append the erasure entry for *entry* and return the record of the erasure.

        A repeated request with the same Idempotency-Key *key*, as `Allowed.namespaced_key` returns
        it, returns the record of the first request.

        If entries from *entry.before* on stay, the page also repeats the object's latest operation
        after the erasure entry, so that the object continues to exist.

        Raises:
            InvalidOperation: *entry.before* is not a place in the log.
            Chained: *feed* is a copy; erase the object in the feed that it copies.
            KeyReused, TooLarge, Unavailable: see `Appender.append_once`.
        """
        self.appender.check_writable(feed)
        before = self._before(feed, entry.before)
        for _ in range(limits.APPEND_ATTEMPTS_MAX):
            try:
                page = self._append(feed, entry, before, key, self._latest(feed, entry))
            except _ObjectMoved:
                continue
            return self._enter(feed, page)
        raise Unavailable(f"{feed}: the object kept changing; try again")

    def forget(self, feed: str, entry: Entry, deleted: tuple[int, int]) -> Erasure | None:
        """Append *entry* unless the object has changed since its deletion at *deleted*.

        Return None if the object exists again, was deleted again, or is erased.

        Raises:
            Chained, Unavailable: see `request`.
        """
        latest = self._latest(feed, entry)
        is_later = latest.at > deleted or is_erasure(latest.line)
        if latest.line and (is_later or event_of(latest.line) != "delete"):
            return None
        try:
            return self._enter(feed, self._append(feed, entry, None, None, latest))
        except _ObjectMoved:
            return None

    def _enter(self, feed: str, page: Page) -> Erasure:
        """Return the record of the erasure with its entry on *page*, and add it to the ledger."""
        # The erasure entry is the first one of its page.
        stored = self.store.erasure(feed, Place(page.number, 0, page.seconds).encode())
        erasure = stored or self._of_page(page)
        assert erasure is not None
        if self.ledger is not None and erasure.phase is not Phase.DONE:
            self.ledger.add(feed, erasure)
        return erasure

    def request_again(self, feed: str) -> Sequence[Erasure]:
        """Request the erasures again that the ledger has and the log lacks; return the new records.

        This is the case after the tables of the feed were restored from a backup. A copy receives
        the entries from its upstream, so nothing is requested for it.
        """
        again: list[Erasure] = []
        if self.ledger is None:
            return again
        for lost in self.ledger.entries(feed):
            if self.show(feed, lost.id) is not None:
                continue
            # The counter was raised, so *before* is still below the end of the log.
            fields = lost.type, lost.object_id, lost.by, lost.reason, (), lost.before
            entry = Entry(*fields, as_parent=lost.as_parent)
            again.append(self.request(feed, entry, f"erasure {lost.id}"))
            self.ledger.remove(feed, lost.id)
        return again

    def list(self, feed: str, after: str = "") -> Sequence[Erasure]:
        """Return the records of the erasures of *feed* after the id *after*, the oldest first.

        Return at most `limits.ERASURES_LISTED` records.
        """
        return self.store.erasures(feed, after)

    def show(self, feed: str, erasure_id: str) -> Erasure | None:
        """Return the record with the event id *erasure_id*, or None if it does not exist."""
        place = cursors.parse_cursor(erasure_id)
        if not isinstance(place, Place):
            return None
        stored = self.store.erasure(feed, erasure_id)
        if stored is not None:
            return stored
        page = self.current.reader.at(feed, place.page)  # the state may not have handled it yet
        if page is None or page.seconds != place.seconds or place.slot:
            return None
        return self._of_page(page)

    def _before(self, feed: str, text: str) -> Place | None:
        if not text:
            return None
        place = cursors.parse_cursor(text)
        if not isinstance(place, Place) or not 0 < place.page <= self.appender.log.head(feed):
            rule = "must be the id of an entry in the log"
            raise InvalidOperation(rule, field="before", value=text)
        return place

    def _latest(self, feed: str, entry: Entry) -> _LatestOperation:
        """Return the latest operation of the object of *entry*, which must then stay the latest."""
        object_ = object_key(Operation("delete", entry.type, entry.id, ()))
        latest = _LatestOperation(self.current, feed, object_)
        latest.read()
        latest.pin()
        return latest

    def _append(
        self,
        feed: str,
        entry: Entry,
        before: Place | None,
        key: str | None,
        latest: _LatestOperation,
    ) -> Page:
        lives = latest.line != "" and event_of(latest.line) != "delete"
        if lives:
            entry = replace(entry, parents=parse_line(latest.line).parents)
        lines = [encode_entry(entry, now_ms=self.runtime.clock())]
        if lives and before is not None and latest.at >= (before.page, before.slot):
            lines.append(latest.line)
        if key is None:
            return self.appender.append(feed, lines, latest)
        fields = entry.type, entry.id, entry.reason, entry.before, entry.as_parent
        fingerprint = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
        return self.appender.append_once(feed, lines, key, fingerprint, latest)

    def _of_page(self, page: Page) -> Erasure | None:
        rows = rows_of(page, tombstone_ms=self.runtime.tombstone_ms)
        if not rows or rows[0].slot or not is_erasure(rows[0].line):
            return None
        return erasure_of(rows[0], self.runtime.tombstone_ms)
