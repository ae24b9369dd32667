"""A worker of a named consumer. It reads messages, passes on batches, and acknowledges the batches.

The feed stores the position of the consumer, so its workers may run on any machines. Only one
worker is active at a time. When the active worker ends, another worker takes over, without loss or
reordering. The active worker renews its lease, and sends the fence of the lease with every request.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidings.client.consumer import Consumer, Delivery
from tidings.client.errors import ClientError, Lost, Refused, Unwritten
from tidings.client.events import LIVE, RESET, Event, is_copied
from tidings.client.feed_api import Answer, NamedConsumers
from tidings.client.reconnect import Transport
from tidings.client.retries import Closing, log_lost, repeat
from tidings.core.model.filters import FIELDS

RENEWALS = 3  # renewals per duration of a lease; two of them may fail
_JOIN_S = 1.0  # short, because a renewal that still runs is harmless
_SPAN = re.compile(r"([0-9]+)\.([0-9]+)-([0-9]+)", re.ASCII)
_ID_CHARS = 24
_FENCE_LOST = "fence_lost"
_UNKNOWN_PARKED = "unknown_parked"
BULK = 500  # half of the largest page; most stores accept a few hundred messages at once
LINGER_S = 0.2  # the wait of a batch's first message for others; a longer wait would be noticeable
IDLE_S = 0.5  # an idle worker notices within this time that it has to stop
PAUSE_S = 5.0  # the pause between requests of a paused or waiting worker; a lease is longer
DRAIN_S = 30.0  # how long `close` waits for the batch that is being written
_HELD = "consumer_held"
T = TypeVar("T")


class Overtaken(Exception):
    """Another worker or an operator took over, so a new lease is needed."""


class Session(Closing):
    """A lease, described by the feed's *answer* to `lease`. A thread renews it until `close`.

    Requests are passed to *again*, which retries until the feed answers. Each request raises
    `Overtaken` if another worker or an operator holds the consumer.
    """

    def __init__(
        self,
        api: NamedConsumers,
        name: str,
        answer: Answer,
        again: Callable[[Callable[[], None]], None],
    ) -> None:
        self._api, self._name, self._again = api, name, again
        self._ended = threading.Event()
        self._renew_s = answer["lease_ms"] / 1000 / RENEWALS
        self.fence: int = answer["fence"]
        self.cursor: str = answer["cursor"]
        self._copying: bool = answer["copying"]
        # In *answer*, an empty list matches nothing, and a missing list matches everything. For a
        # `Consumer`, `[""]` matches nothing, and an empty list matches everything.
        lists = {name: answer.get(name) for name in FIELDS}
        self.filter: dict[str, Any] = {
            name: [] if values is None else values or [""] for name, values in lists.items()
        }
        self.filter["erasures"] = answer.get("erasures", False)
        self.single_through: str = answer["single_through"] or ""
        # None if an earlier release of the feed does not keep the number.
        self.written: int | None = answer.get("written")
        self._reported = self.written
        self._acked = [tuple(map(int, span)) for span in _SPAN.findall(answer["acked"])]
        self._note(answer)
        self._thread = threading.Thread(target=self._renew, name="tidings-lease", daemon=True)
        self._thread.start()

    def _note(self, answer: Answer) -> None:
        self.retries: list[str] = answer["retries"]
        self.paused: bool = answer["paused"]

    def acked(self, event_id: str) -> bool:
        """Return True if the event is acknowledged, although an earlier event is not."""
        page, slot = place_of(event_id)
        return any(page == of and first <= slot <= last for of, first, last in self._acked)

    def expects(self, event: Event) -> bool:
        """Return True if a worker of this lease should write *event*.

        If the log was trimmed in the meantime, the worker receives a copy that it did not request.
        It should not write this copy, which only has the latest operation of each object.
        """
        return self._copying or not (event.name == RESET or is_copied(event.id))

    def one_at_a_time(self, event_id: str) -> bool:
        return bool(self.single_through) and event_id[8:] <= self.single_through[8:]

    @property
    def is_unreported(self) -> bool:
        return self.written != self._reported

    def acknowledge(self, **fields: Any) -> None:
        """Acknowledge messages, and report the number `written` if it has changed."""
        written = self.written
        if self.is_unreported:
            fields["written"] = written
        self._say("ack", fields)
        self._reported = written

    def acknowledge_again(self, event_id: str) -> bool:
        """Acknowledge a parked message that was written again.

        Return False if the feed does not expect the acknowledgement any more, because the message
        was dropped, or because the answer to an earlier acknowledgement was lost.
        """
        try:
            self.acknowledge(retried=[event_id])
        except Refused as refused:
            if refused.code != _UNKNOWN_PARKED:
                raise
            return False
        return True

    def fail(self, event_id: str, error: str) -> None:
        """Report a failure.

        If the feed parks the message, the worker continues. Otherwise, the feed releases the lease.
        The id of a row of a copy is not reported, because the row is not an operation in the log.
        """
        named = {"id": event_id} if is_entry(event_id) else {}
        self._say("fail", {**named, "error": error or "no reason given"})

    def release(self) -> None:
        """Release the lease."""
        self._say("release", {})

    def close(self) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)

    def _say(self, action: str, fields: dict[str, Any]) -> None:
        body = {"fence": self.fence, **fields}
        try:
            self._again(lambda: self._note(self._api.act(self._name, action, body)))
        except Refused as refused:
            if refused.code == _FENCE_LOST:
                raise Overtaken from None
            raise

    def _renew(self) -> None:
        while not self._ended.wait(self._renew_s):
            try:
                self._note(self._api.act(self._name, "ack", {"fence": self.fence}))
            except Lost:
                continue
            except (ClientError, RuntimeError):  # a closed client of httpx raises RuntimeError
                return  # the next request of the worker raises the error


def is_id(text: str) -> bool:
    return len(text) == _ID_CHARS


def is_entry(event_id: str) -> bool:
    """Return True if *event_id* names one operation in the log; a feed can store its result."""
    return is_id(event_id) and not is_copied(event_id)


def place_of(event_id: str) -> tuple[int, int]:
    """Return the page number of an event, and its slot, the place in the page."""
    return int(event_id[8:18], 16), int(event_id[18:], 16)


class Message(NamedTuple):
    """A message of the feed.

    `event` is insert, update, delete, erase or reset; `data` is the operation, {} for a reset.
    """

    id: str
    event: str
    data: dict[str, Any]


Write = Callable[[Sequence[Message]], None]


class Worker(Closing):
    """A worker for the existing consumer *name* of *feed*.

    `run` calls `write` with batches of at most *bulk* messages, in order, and acknowledges a batch
    when `write` returns. *write* may set `written`, a number that its store has since the batch;
    the feed keeps it with the acknowledgement, and it is the `written` of the next lease. Messages
    that a crashed or failed worker had started are passed one at a time. A `reset` is passed alone,
    before a copy of everything. `fence` grows with each lease, so that a store can refuse the
    writes of an earlier worker. *on_held* is called whenever a request for the lease finds that
    another worker still holds the consumer. *on_log* is called once a lease, after all rows of a
    copy were written and before the first message of the log. An error of *on_log* is handled like
    an error of `write`, except that the copy stays unacknowledged. *on_idle* is called regularly
    while no message arrives, and at the end of a lease; it may set `written`, too. Failed requests
    are repeated without end, unless *timeout_s* limits the time in which no attempt succeeds.

    Raises:
        WrongUrl: *url* or *ws_url* is not a valid address.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        feed: str = "main",
        password: str = "",
        transport: Transport = "ws",
        ws_url: str | None = None,
        bulk: int = BULK,
        worker: str = "",
        timeout_s: float | None = None,
        on_lost: Callable[[Lost, float], None] = log_lost,
        on_held: Callable[[str], None] = lambda reason: None,
        on_log: Callable[[], None] = lambda: None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        if bulk < 1:
            raise ValueError(f"bulk must be at least 1, not {bulk}")
        self._api = NamedConsumers(url, feed, password=password, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._name, self._bulk = name, bulk
        self._on_lost, self._on_held, self._on_log = on_lost, on_held, on_log
        self._on_idle = on_idle
        self._worker = worker or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._consumer = partial(
            Consumer,
            url,
            feed=feed,
            password=password,
            transport=transport,
            ws_url=ws_url,
            on_lost=on_lost,
            timeout_s=timeout_s,
        )
        self.fence = 0
        self._session: Session | None = None
        self._closed, self._stopped = threading.Event(), threading.Event()
        self._stopped.set()

    def run(self, write: Write) -> None:
        """Work until the worker is closed or *write* raises.

        The error of *write* is reported to the feed and raised.

        *write* may raise `Unwritten` with the number of messages that it wrote. After any other
        error, the whole batch counts as unwritten.

        Raises:
            AccessDenied, Refused: the feed gave a final answer.
            FellOff: the next message of the consumer is gone from the log.
        """
        self._stopped.clear()
        try:
            while not self._closed.is_set():
                try:
                    self._work(write)
                except Overtaken:
                    continue
        finally:
            self._stopped.set()

    @property
    def written(self) -> int:
        return (self._session and self._session.written) or 0

    @written.setter
    def written(self, written: int) -> None:
        if self._session is not None and self._session.written is not None:
            self._session.written = written

    def stop(self) -> None:
        """Make `run` end after the current batch. A signal handler may call this method."""
        self._closed.set()

    def pause(self, delay_s: float) -> None:
        """Wait within *write*, and keep the lease.

        Raises:
            Overtaken: the lease is lost, or the worker was stopped. *write* must pass this error
                on; the batch then counts as unwritten, and not as failed.
        """
        if self._closed.wait(delay_s) or self._session is None:
            raise Overtaken
        self._session.acknowledge()

    def close(self) -> None:
        """End `run`; wait up to 30 seconds for the current batch to be acknowledged."""
        self.stop()
        self._stopped.wait(DRAIN_S)
        self._api.close()

    def _work(self, write: Write) -> None:
        session = self._session = self._lease()
        if session is None:
            return
        with session:
            try:
                self._work_with(session, write)
            except Overtaken:
                if not self._closed.is_set():
                    raise
            with suppress(Lost):  # everything is acknowledged; the lease expires
                session.release()

    def _work_with(self, session: Session, write: Write) -> None:
        while session.paused and not self._closed.wait(PAUSE_S):
            session.acknowledge()
        if not self._closed.is_set() and self._send_again(session, write):
            with self._consumer(**session.filter, cursor=session.cursor) as consumer:
                hooks = self._on_log, self._on_idle
                _Turn(session, consumer, write, self._bulk, *hooks).run(self._must_stop)

    def _lease(self) -> Session | None:
        """Wait for the lease and return it, or None if the worker is closed in the meantime."""
        while not self._closed.is_set():
            try:
                session = self._again(self._ask_for_lease)
                self.fence = session.fence
                return session
            except Refused as refused:
                if refused.code != _HELD:
                    raise
                self._on_held(refused.message)
                self._closed.wait(PAUSE_S)
        return None

    def _must_stop(self, session: Session) -> bool:
        """Return True if the worker should stop reading."""
        return self._closed.is_set() or session.paused or bool(session.retries)

    def _send_again(self, session: Session, write: Write) -> bool:
        """Write the messages that an operator marked for retry, one by one.

        Return True if all these messages were written.
        """
        while session.retries and not self._closed.is_set():
            parked = self._again(lambda: self._api.parked(self._name))
            kept = {each["id"]: each for each in parked}
            wanted = session.retries[0]
            message = kept.get(wanted)
            if message is None:
                return False
            try:
                write([Message(wanted, message["event"], message["data"])])
            except Overtaken:
                raise
            except Exception as error:  # noqa: BLE001 the caller's code may raise anything
                session.fail(wanted, str(error))
            else:
                if not session.acknowledge_again(wanted):
                    return False
        return not session.retries

    def _ask_for_lease(self) -> Session:
        answer = self._api.act(self._name, "lease", {"worker": self._worker})
        return Session(self._api, self._name, answer, self._again)

    def _again(self, call: Callable[[], T]) -> T:
        """Repeat *call* until it returns an answer or the worker is closed."""
        return repeat(call, within_s=self._timeout_s, on_lost=self._on_lost, wait=self._closed.wait)


class _Turn:
    """The batches and acknowledgements of one lease, until the worker has to stop reading."""

    def __init__(
        self,
        session: Session,
        consumer: Consumer,
        write: Write,
        bulk: int,
        on_log: Callable[[], None] = lambda: None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._consumer, self._write, self._bulk = session, consumer, write, bulk
        self._now_s, self._on_log, self._on_idle = time.monotonic, on_log, on_idle
        self._is_in_log = False  # True after `on_log`
        self._is_live = False  # True if the feed has no more messages of a copy
        self._held: Delivery | None = None  # a message that was read for the next batch
        self._acknowledged = session.cursor

    def run(self, interrupted: Callable[[Session], bool]) -> None:
        while not interrupted(self._session):
            batch = self._batch()
            if not self._is_in_log and (self._is_live if not batch else not _is_of_copy(batch[0])):
                self._begin_log()
            if not batch:
                self._on_idle()
                self._report()
                continue
            self._report(sending=batch[-1].id)
            if not interrupted(self._session):  # the answer to the report may require a stop
                self._write_batch(batch)
        self._on_idle()
        self._report()

    def _begin_log(self) -> None:
        try:
            self._on_log()
        except Exception as error:
            self._session.fail("", str(error) or type(error).__name__)
            raise
        self._is_in_log = True

    def _report(self, **fields: str) -> None:
        """Acknowledge newly written messages, if any, and report *fields*, such as `sending`."""
        cursor = self._consumer.cursor
        if cursor != self._acknowledged and is_id(cursor):
            fields["through"] = cursor
        if fields or self._session.is_unreported:
            self._session.acknowledge(
                **{name: text for name, text in fields.items() if is_id(text)}
            )
            self._acknowledged = cursor

    def _batch(self) -> list[Delivery]:
        """Return the messages that may be written together; [] if no message arrives.

        The first message waits at most `LINGER_S`, however steadily others arrive.
        """
        batch: list[Delivery] = []
        wait_s, until_s = IDLE_S, 0.0
        while len(batch) < self._bulk:
            delivery = self._next(wait_s)
            if delivery is None:
                break
            until_s = until_s or self._now_s() + LINGER_S
            wait_s = max(0.0, until_s - self._now_s())
            if batch and (self._is_sent_alone(delivery) or self._ends_copy(batch, delivery)):
                self._held = delivery
                break
            batch.append(delivery)
            if self._is_sent_alone(delivery):
                break
        return batch

    def _next(self, timeout_s: float) -> Delivery | None:
        """Return the next message to write; acknowledge other messages, such as `live`."""
        while True:
            held, self._held = self._held, None
            delivery = held or self._consumer.within(timeout_s)
            if delivery and not self._session.expects(delivery.event):
                raise Overtaken  # the log was trimmed; a new lease has a valid cursor or is refused
            if delivery is None or delivery.name == RESET:
                return delivery
            if delivery.is_operation and not self._session.acked(delivery.id):
                return delivery
            self._is_live = self._is_live or delivery.name == LIVE
            delivery.ack()

    def _ends_copy(self, batch: list[Delivery], delivery: Delivery) -> bool:
        return not self._is_in_log and _is_of_copy(batch[0]) and not _is_of_copy(delivery)

    def _is_sent_alone(self, delivery: Delivery) -> bool:
        return delivery.name == RESET or self._session.one_at_a_time(delivery.id)

    def _write_batch(self, batch: list[Delivery]) -> None:
        try:
            self._write([Message(each.id, each.name, each.data) for each in batch])
        except Overtaken:
            raise
        except Exception as error:
            self._fail(batch, error)
            raise
        for each in batch:
            each.ack()
        if batch[0].name == RESET:
            self._is_in_log = self._is_live = False

    def _fail(self, batch: list[Delivery], error: Exception) -> None:
        """Report the written messages of *batch*, and the message that failed with *error*."""
        index = error.index if isinstance(error, Unwritten) else 0
        for each in batch[:index]:
            each.ack()
        known = isinstance(error, Unwritten) or len(batch) == 1
        self._report()
        self._session.fail(batch[index].id if known else "", str(error) or type(error).__name__)


def _is_of_copy(delivery: Delivery) -> bool:
    return delivery.name == RESET or is_copied(delivery.id)
