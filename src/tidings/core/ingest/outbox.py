"""
The outbox: messages that other applications write in one transaction with their own tables.

The forwarder appends each message to the log under the id of the message, so that retries append
it once. A message is deleted after its page is in the log. An invalid message is set aside with
the reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.core.model.json_body import NDJSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidings.core.effects import Clock, Count
    from tidings.core.ingest.ingest import Lines
    from tidings.core.log.append import Appender


OPERATIONS, ITEMS = "operations", "items"
_MS_DIGITS = 13  # of milliseconds since 1970, until the year 2286


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """*body* is NDJSON of what *kind* says. Messages are appended in the order of their ids."""

    id: str
    kind: str
    body: str

    @property
    def at_ms(self) -> int:
        """When it was left, by its id; 0 where the id is somebody's who does not say it so."""
        digits = self.id.partition("-")[0]
        return int(digits) if digits.isdecimal() and len(digits) == _MS_DIGITS else 0


class Outbox(Protocol):
    """What owners of other tables left for each feed."""

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        """The oldest messages, some 1 MB at most; none where none is left. Strongly consistent."""

    def done(self, feed: str, message: OutboxMessage) -> None:
        """Remove it: its page is in the log."""

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        """Remove it and keep it elsewhere, with the reason why it never can be appended."""


@dataclass(frozen=True, slots=True)
class Forwarder:
    """*lines* reads the body of each kind."""

    outbox: Outbox
    appender: Appender
    lines: Mapping[str, Lines]
    clock: Clock
    count: Count

    def run(self, feed: str, until_ms: int | None = None) -> int:
        """
        Append the messages that wait for *feed*, until *until_ms*; how many there were.

        Raises:
            Unavailable: a store did not answer; the messages that are left come again.
        """
        done, until = 0, until_ms or self.clock() + limits.FORWARD_RUN_MS
        while messages := self.outbox.pending(feed):
            for message in messages:
                self._forward(feed, message)
                done += 1
                if self.clock() >= until:
                    return done
        return done

    def _forward(self, feed: str, message: OutboxMessage) -> None:
        try:
            self._append(feed, message)
        except Rejected as error:
            self.outbox.put_aside(feed, message, str(error))
            self.count("LettersRefused", 1)
            return
        self.outbox.done(feed, message)
        self.count("LettersForwarded", 1)

    def _append(self, feed: str, message: OutboxMessage) -> None:
        body = message.body.encode()
        lines = self.lines[message.kind](feed, body, NDJSON_TYPE, now_ms=self.clock())
        fingerprint = hashlib.sha256(body).hexdigest()
        self.appender.append_once(feed, lines, f"outbox/{message.id}", fingerprint)


@dataclass(frozen=True, slots=True)
class OutboxMonitor:
    """Whether a message waits: *wake* is called with the feed where one does."""

    outbox: Outbox
    wake: Callable[[str], None]
    clock: Clock
    count: Count

    def run(self, feed: str) -> None:
        waiting = self.outbox.pending(feed)
        if not waiting:
            return
        at_ms = waiting[0].at_ms
        self.count("OutboxAge", max(0, self.clock() - at_ms) // 1000 if at_ms else 0)
        self.wake(feed)
