"""A copy of the objects of a feed that compares itself with the feed and repairs differences."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidings.client.consumer import Consumer
from tidings.client.errors import FellOff, Lost, Refused, WrongAnswer
from tidings.client.events import LIVE, RESET, Event, from_text
from tidings.client.feed_api import FeedApi
from tidings.client.files import EVERYTHING
from tidings.client.reconnect import Transport
from tidings.client.retries import ATTEMPTS_MAX, Closing, repeat
from tidings.core import limits
from tidings.core.errors import BrokenBatch, OtherLog
from tidings.core.model.cursors import PAGE_END, Place, parse_cursor
from tidings.core.model.events import of_line
from tidings.core.model.filters import as_text
from tidings.core.model.operations import decode, type_prefix
from tidings.core.replication.wire import decode_batch
from tidings.core.state.rows import bucket_of
from tidings.core.state.sums import MODULO, PageSums, digest

CHECK_EVERY_S = 18.0  # with the time for answers, still below the heartbeat interval of 20 s
_DELETE = "delete"
T = TypeVar("T")


class Held(NamedTuple):
    """The latest operation of an object and its place in the log.

    *data* is the operation without its field `event`; None if the object is deleted.
    """

    page: int
    slot: int
    data: Mapping[str, Any] | None


class _BucketRows(NamedTuple):
    """The rows of a bucket: they contain all pages up to *state*, and may contain later operations.

    *seconds* has the time of each row's page.
    """

    rows: dict[str, Held]
    state: int
    seconds: dict[int, int]


class Fold(Closing):
    """A copy of *feed*: *held* has the latest operation of each object, by key.

    Iterating keeps the copy up to date and yields each event that changed the copy. The copy starts
    with the rows of the feed's state. Every *check_every_s* seconds, the copy is compared with the
    checksums of the feed (PROTOCOL 20). If the checksums differ and the copy may lag, the missing
    operations are read from the log, without their field `ref`. If a bucket still differs,
    *on_wrong* is called with the bucket's number, 0 to 63, and the rows of that bucket are read
    again. So lost operations and wrong entries of *held* are found within 20 seconds, the interval
    of heartbeats. The checksums only cover the place of each operation, so a change of *data*
    without a change of its place is not found. A comparison takes about 2 us per object.

    With *types*, only objects of these types are kept; a feed keeps separate checksums for its
    first eight types. After a lost connection, the copy reconnects and *on_lost* is called.
    *compared* counts the comparisons. Close the copy, or use `with`.

    Raises:
        WrongUrl: *url* or *ws_url* is not a valid address.
        AccessDenied, Refused: the server gave a final answer; also while iterating.
        Lost: the feed did not answer one of the first requests, however often it was sent.
    """

    def __init__(
        self,
        url: str,
        *,
        transport: Transport = "ws",
        feed: str = "main",
        types: Sequence[str] = (),
        password: str = "",
        ws_url: str | None = None,
        check_every_s: float = CHECK_EVERY_S,
        on_wrong: Callable[[int], None] = lambda bucket: None,
        on_lost: Callable[[Lost, float], None] = lambda lost, delay_s: None,
    ) -> None:
        self.held: dict[str, Held] = {}
        self.compared = 0
        self._query = {"types": as_text(types)} if types else {}
        self._check_every_s, self._on_wrong, self._on_lost = check_every_s, on_wrong, on_lost
        # The page, the bucket and the change of the bucket's checksum, for each recent operation.
        self._undo: list[tuple[int, int, int]] = []
        self._floors = [0] * limits.BUCKETS  # the latest page that the rows of a bucket may contain
        self._position = (0, 0)  # page and slot of the last operation
        self._wrong: set[int] = set()  # buckets to read again
        self._copied = False  # True if rows without a place arrived since the last `live`
        self._api = FeedApi(url, feed, password=password)
        self._lock = threading.Lock()  # held by requests and by `close`
        # After this request, the server keeps checksums.
        self._again(lambda: self._api.ask("GET", "sums", query=self._query))
        buckets = [self._again(partial(self._reload, bucket)) for bucket in range(limits.BUCKETS)]
        self._consumer = Consumer(
            url,
            transport=transport,
            feed=feed,
            types=types,
            password=password,
            cursor=_start_cursor(buckets),
            ws_url=ws_url,
            on_lost=on_lost,
        )

    def close(self) -> None:
        """End the iteration. Any thread may call this method."""
        self._consumer.close()
        with self._lock:
            self._api.close()

    def __iter__(self) -> Iterator[Event]:
        due_s = time.monotonic() + self._check_every_s
        while not self._consumer.ended:
            delivery = self._consumer.within(max(0.0, due_s - time.monotonic()))
            if delivery is not None:
                if self._handle(delivery.event):
                    yield delivery.event
                delivery.ack()
            late: list[Event] = []
            with self._lock:
                if not self._consumer.ended:
                    due_s = self._check_if_due(due_s, late)
            yield from late

    def _check_if_due(self, due_s: float, late: list[Event]) -> float:
        """Compare and repair if this is due; return the time when the next comparison is due.

        Events that were read from the log and applied are appended to *late*.
        """
        now_s = time.monotonic()
        is_due = now_s >= due_s
        next_s = now_s + self._check_every_s if is_due else due_s
        try:
            if is_due and not self._wrong:
                self._compare(late)
            while self._wrong:
                self._reload(min(self._wrong))
                self._wrong.remove(min(self._wrong))
        except FellOff:
            pass  # the consumer receives a `reset` and handles it
        except Refused as refused:
            # `OtherLog` means that the log was restored, so a `reset` follows in this case too.
            if refused.code != OtherLog.code:
                raise
        except Lost as lost:
            self._on_lost(lost, next_s - now_s)
        return next_s

    def _again(self, call: Callable[[], T]) -> T:
        return repeat(call, attempts_max=ATTEMPTS_MAX, on_lost=self._on_lost, wait=time.sleep)

    def _handle(self, event: Event) -> bool:
        """Return True if *event* changed *held*."""
        place = parse_cursor(event.id)
        if not event.is_operation or not isinstance(place, Place):
            self._copied |= event.name == RESET or event.is_operation
            if event.name == RESET:
                self._position = (0, 0)  # another log may follow, with lower places
            if event.name == LIVE and self._copied:
                self._copied = False
                self._wrong |= set(range(limits.BUCKETS))
            return False
        if (place.page, place.slot) <= self._position:
            return False  # the event was read from the log in the meantime
        self._position = (place.page, place.slot)
        return self._apply(event, place)

    def _apply(self, event: Event, place: Place) -> bool:
        key = f"{type_prefix(event.data['type'])}{event.data['id']}"
        before = self.held.get(key)
        if before is not None and before[:2] >= (place.page, place.slot):
            return False
        now = _entry(place.page, place.slot, None if event.name == _DELETE else event.data)
        self.held[key] = now
        added = _digest(key, now) - (_digest(key, before) if before else 0)
        self._undo.append((place.page, bucket_of(key), added))
        return True

    def _compare(self, late: list[Event]) -> None:
        place = parse_cursor(self._consumer.cursor)
        if not isinstance(place, Place):
            return  # no comparison is possible during a copy, because rows of a copy have no places
        sums = PageSums.from_json(self._api.ask("GET", "sums", query=self._query))
        differing = self._differing(sums)
        if differing and self._position[0] <= sums.page:
            for event in self._events_after(place, sums.page):
                if self._handle(event):
                    late.append(event)
            differing = self._differing(sums)
        for bucket in differing:
            self._on_wrong(bucket)
            self._wrong.add(bucket)
        self._forget(sums.page)
        self.compared += any(each is not None for each in sums.sums)

    def _events_after(self, place: Place, page: int) -> Iterator[Event]:
        """Yield the events after *place*, at least up to the end of *page*."""
        after = Place(place.page - 1, PAGE_END, 0)  # read the page of *place* again
        while after.page < page:
            query = self._query | ({"after": after.encode()} if after.page > 0 else {})
            text = "\n".join([*self._api.lines("pages", query=query), ""])
            try:
                batch = decode_batch(text)
            except BrokenBatch as error:
                raise Lost(str(error)) from None
            if not batch.pages:
                return
            for each in batch.pages:
                for slot, line in each.entries(place.slot + 1 if each.number == place.page else 0):
                    entry = of_line(each.id_prefix, slot, line)
                    yield from_text(entry.id, entry.name, entry.data)
            after = batch.pages[-1].end

    def _differing(self, sums: PageSums) -> list[int]:
        """Return the buckets that differ from *sums*; ignore what follows the page of *sums*."""
        found = [0] * limits.BUCKETS
        for key, held in self.held.items():
            found[bucket_of(key)] += _digest(key, held)
        for page, bucket, added in self._undo:
            if page > sums.page:
                found[bucket] -= added
        differing = sums.differing([each % MODULO for each in found])
        return [bucket for bucket in differing if sums.page >= self._floors[bucket]]

    def _forget(self, page: int) -> None:
        """Drop the data that comparisons after *page* do not need."""
        self._undo = [each for each in self._undo if each[0] > page]
        gone = [key for key, held in self.held.items() if held.data is None and held.page <= page]
        for key in gone:
            del self.held[key]

    def _reload(self, bucket: int) -> _BucketRows:
        """Replace the held objects of *bucket* with the rows that the feed has in this bucket."""
        rows, state, _ = answer = self._rows(bucket)
        for key in [key for key in self.held if bucket_of(key) == bucket]:
            # Keep operations of the log that are later than the rows; drop the rest.
            if not state < self.held[key].page <= self._position[0]:
                del self.held[key]
        for key, row in rows.items():
            held = self.held.get(key)
            if held is None or held[:2] < row[:2]:
                self.held[key] = row
        # The rows may contain operations that cannot be undone for a comparison with older
        # checksums. So the bucket is compared again once the checksums are as recent as the rows.
        latest = max((held.page for held in rows.values()), default=0)
        self._floors[bucket] = max(state, latest, self._position[0])
        return answer

    def _rows(self, bucket: int) -> _BucketRows:
        found = _BucketRows({}, 0, {})
        after = ""
        while after is not None:
            query = self._query | {"bucket": str(bucket)} | ({"after": after} if after else {})
            try:
                head, *lines = map(decode, self._api.lines("rows", query=query))
                found = found._replace(state=found.state or head["state"])
            except (ValueError, TypeError, KeyError):
                raise WrongAnswer from None
            for (key, page, slot, at_ms, expires_ms), line in zip(*[iter(lines)] * 2, strict=True):
                found.seconds[page] = at_ms // 1000
                found.rows[key] = _entry(page, slot, None if expires_ms else line)
            after = head["after"]
        return found


def _start_cursor(buckets: Sequence[_BucketRows]) -> str:
    """Return the cursor after the last page that has a row and that all buckets contain."""
    state = min(each.state for each in buckets)
    seconds = {page: at for each in buckets for page, at in each.seconds.items() if page <= state}
    page = max(seconds, default=0)
    return Place(page, PAGE_END, seconds[page]).encode() if page else EVERYTHING


def _digest(key: str, held: Held) -> int:
    return 0 if held.data is None else digest(key, held.page, held.slot)


def _entry(page: int, slot: int, data: Mapping[str, Any] | None) -> Held:
    """Return an entry of `held`, without the field `event`, which events have and rows lack."""
    kept = None if data is None else {name: data[name] for name in data if name != "event"}
    return Held(page, slot, kept)
