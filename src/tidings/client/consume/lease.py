"""The lease of a worker: kept alive while it works, and everything it says with its fence."""

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
_JOIN_S = 1.0  # a renewal on its way harms nobody
_SPAN = re.compile(r"([0-9]+)\.([0-9]+)-([0-9]+)", re.ASCII)
_ID_CHARS = 24
_ROWS = 0x800000  # slots from here up are places in a copy
_FENCE_LOST = "fence_lost"
_UNKNOWN_PARKED = "unknown_parked"


class Overtaken(Exception):
    """Another worker or an operator took over: begin anew."""


class Session(Closing):
    """
    *answer* is that of a lease. A thread renews it until it is closed.

    What is said is retried by *again*, which calls until there is an answer.
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
        """Whether it was acknowledged already, beyond the first that was not."""
        page, slot = place_of(event_id)
        return any(page == of and first <= slot <= last for of, first, last in self._acked)

    def expects(self, event: Event) -> bool:
        """
        Whether it is what a worker of this lease is to write.

        A worker that was not to copy is told of a copy where the log was given up meanwhile:
        the latest of each object, and not each message.
        """
        return self._copying or not (event.name == RESET or is_row(event.id))

    def one_at_a_time(self, event_id: str) -> bool:
        return bool(self.single_through) and event_id[8:] <= self.single_through[8:]

    def acknowledge(self, **fields: Any) -> None:
        """
        Raises:
            Overtaken: nothing of it counts.
            Refused: it breaks a rule.
        """
        self._note(self._say("ack", fields))

    def acknowledge_again(self, event_id: str) -> bool:
        """
        A parked message was written; False where it is not to be sent again any more: it was
        dropped, or an answer was lost that said so before.

        Raises:
            Overtaken: nothing of it counts.
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
        Let go; of a parked message, go on. A row of a copy is not named: it is no entry of the log.

        Raises:
            Overtaken: somebody else holds the consumer.
        """
        named = {"id": event_id} if is_entry(event_id) else {}
        self._note(self._say("fail", {**named, "error": error or "no reason given"}))

    def release(self) -> None:
        """
        Raises:
            Overtaken: somebody else holds the consumer.
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
            except (ClientError, RuntimeError):  # of httpx, when it is closed meanwhile
                return  # the worker learns it with its next word


def is_id(text: str) -> bool:
    return len(text) == _ID_CHARS


def is_row(event_id: str) -> bool:
    """Whether it is of a row of a copy (PROTOCOL 5.2)."""
    return is_id(event_id) and place_of(event_id)[1] >= _ROWS


def is_entry(event_id: str) -> bool:
    """Whether it is of one operation in the log, so that a feed can keep what became of it."""
    return is_id(event_id) and not is_row(event_id)


def place_of(event_id: str) -> tuple[int, int]:
    """Page and slot of an event."""
    return int(event_id[8:18], 16), int(event_id[18:], 16)
