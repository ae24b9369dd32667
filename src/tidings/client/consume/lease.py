"""The lease of a worker: renewed while it works, with its fence in every request."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from tidings.client.closing import Closing
from tidings.client.consume.named_consumers import NamedConsumers
from tidings.client.errors import ClientError, Lost, Refused
from tidings.client.events import RESET, Event
from tidings.client.subscription import FIELDS
from tidings.client.transport.feed_api import Answer

RENEWALS = 3  # of each lease: two of them may fail
_JOIN_S = 1.0  # a renewal that is still running does no harm
_SPAN = re.compile(r"([0-9]+)\.([0-9]+)-([0-9]+)", re.ASCII)
_ID_CHARS = 24
_ROWS = 0x800000  # slots from here on are places in a copy
_FENCE_LOST = "fence_lost"
_UNKNOWN_PARKED = "unknown_parked"


class Overtaken(Exception):
    """Another worker or an operator took over. Lease again."""


class Session(Closing):
    """
    A lease, created from *answer* of the feed. A thread renews it until it is closed.

    Requests go through *again*, which retries until the feed answers.
    """

    def __init__(
        self,
        api: NamedConsumers,
        name: str,
        answer: Answer,
        again: Callable[[Callable[[], Answer]], Answer],
    ) -> None:
        self._api, self._name, self._again = api, name, again
        self._ended = threading.Event()
        self._renew_s = answer["lease_ms"] / 1000 / RENEWALS
        self.fence: int = answer["fence"]
        self.cursor: str = answer["cursor"]
        self._copying: bool = answer["copying"]
        # An empty list matches nothing, as an empty value does; an empty filter matches everything.
        lists = {name: answer.get(name) for name in FIELDS}
        self.filter: dict[str, Any] = {
            name: [] if values is None else values or [""] for name, values in lists.items()
        }
        self.single_through: str = answer["single_through"] or ""
        self._acked = [tuple(map(int, span)) for span in _SPAN.findall(answer["acked"])]
        self._note(answer)
        self._thread = threading.Thread(target=self._renew, name="tidings-lease", daemon=True)
        self._thread.start()

    def _note(self, answer: Answer) -> None:
        self.retries: list[str] = answer["retries"]
        self.paused: bool = answer["paused"]

    def acked(self, event_id: str) -> bool:
        """Return True if the event is acknowledged, although an earlier one is not."""
        page, slot = place_of(event_id)
        return any(page == of and first <= slot <= last for of, first, last in self._acked)

    def expects(self, event: Event) -> bool:
        """
        Return True if a worker of this lease should write *event*.

        If the log was trimmed in the meantime, the worker receives a copy without having asked for
        one: the latest operation of each object instead of every message.
        """
        return self._copying or not (event.name == RESET or is_row(event.id))

    def one_at_a_time(self, event_id: str) -> bool:
        return bool(self.single_through) and event_id[8:] <= self.single_through[8:]

    def acknowledge(self, **fields: Any) -> None:
        """
        Acknowledge messages.

        Raises:
            Overtaken: the feed ignored the acknowledgement.
            Refused: it violates a rule.
        """
        self._note(self._say("ack", fields))

    def acknowledge_again(self, event_id: str) -> bool:
        """
        Acknowledge a parked message that was written again.

        Return False if the feed no longer expects it: the message was dropped, or an earlier
        acknowledgement succeeded and its answer was lost.

        Raises:
            Overtaken: the feed ignored the acknowledgement.
        """
        try:
            self.acknowledge(retried=[event_id])
        except Refused as refused:
            if refused.code != _UNKNOWN_PARKED:
                raise
            return False
        return True

    def fail(self, event_id: str, error: str) -> None:
        """
        Report a failure. It releases the lease, unless the message is parked: then the worker
        continues.

        A row of a copy is not named, because it is not an entry of the log.

        Raises:
            Overtaken: another worker or an operator holds the consumer.
        """
        named = {"id": event_id} if is_entry(event_id) else {}
        self._note(self._say("fail", {**named, "error": error or "no reason given"}))

    def release(self) -> None:
        """
        Release the lease.

        Raises:
            Overtaken: another worker or an operator holds the consumer.
        """
        self._say("release", {})

    def close(self) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)

    def _say(self, action: str, fields: dict[str, Any]) -> Answer:
        body = {"fence": self.fence, **fields}
        try:
            return self._again(lambda: self._api.act(self._name, action, body))
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
            except (ClientError, RuntimeError):  # RuntimeError: httpx is closed
                return  # the next request of the worker raises it


def is_id(text: str) -> bool:
    return len(text) == _ID_CHARS


def is_row(event_id: str) -> bool:
    """Return True if it is the id of a row of a copy (PROTOCOL 5.2)."""
    return is_id(event_id) and place_of(event_id)[1] >= _ROWS


def is_entry(event_id: str) -> bool:
    """
    Return True if it is the id of one operation in the log, for which a feed can store a result.
    """
    return is_id(event_id) and not is_row(event_id)


def place_of(event_id: str) -> tuple[int, int]:
    """Return page and slot of an event."""
    return int(event_id[8:18], 16), int(event_id[18:], 16)
