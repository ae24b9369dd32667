"""The outbox: messages that other applications write in one transaction with their own tables.

The forwarder appends each message to the log, with the id of the message as the idempotency key
(`Appender.append_once`), so that a retry does not append the message again. A message is deleted
once its page is in the log. An invalid message is moved elsewhere, together with the reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.core.log.due import NEXT_SWEEP
from tidings.core.model.json_body import NDJSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidings.core.effects import Runtime
    from tidings.core.ingest.ingest import BodyParser
    from tidings.core.log.append import Appender


OPERATIONS, ITEMS = "operations", "items"
_MS_DIGITS = 13  # the length of a time in milliseconds since 1970, until the year 2286


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message. Its *kind* selects the parser of its *body*, which is NDJSON.

    Messages are appended in the order of their ids.
    """

    id: str
    kind: str
    body: str

    @property
    def at_ms(self) -> int:
        """Return a message's time in ms since 1970, from its id; 0 for an id without a time."""
        digits = self.id.partition("-")[0]
        return int(digits) if digits.isdecimal() and len(digits) == _MS_DIGITS else 0


class Outbox(Protocol):
    """The messages that other applications wrote, separately for each feed."""

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        """Return the oldest messages, at most about 1 MB, with a strongly consistent read."""

    def done(self, feed: str, message: OutboxMessage) -> None:
        """Delete *message*, because its page is in the log."""

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        """Delete *message* and store it elsewhere, with the reason why it can never be appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarder:
    """A worker that appends the messages of the outbox. *lines* has a parser for each kind."""

    outbox: Outbox
    appender: Appender
    lines: Mapping[str, BodyParser]
    runtime: Runtime

    def run(self, feed: str, until_ms: int | None = None) -> int:
        """Append the pending messages of *feed*; return how many messages were handled.

        End at *until_ms* on the clock `Runtime.steady`, or after `limits.FORWARD_RUN_MS` if
        *until_ms* is None.

        Raises:
            Unavailable: a store did not answer; the next run handles the remaining messages.
        """
        done, until = 0, until_ms or self.runtime.steady() + limits.FORWARD_RUN_MS
        while messages := self.outbox.pending(feed):
            for message in messages:
                self._forward(feed, message)
                done += 1
                if self.runtime.steady() >= until:
                    return done
        return done

    def _forward(self, feed: str, message: OutboxMessage) -> None:
        try:
            body = message.body.encode()
            lines = self.lines[message.kind](feed, body, NDJSON_TYPE, self.runtime.clock())
            fingerprint = hashlib.sha256(body).hexdigest()
            self.appender.append_once(feed, lines, f"outbox/{message.id}", fingerprint)
        except Rejected as error:
            self.outbox.put_aside(feed, message, str(error))
            self.runtime.count("LettersRefused", 1)
            return
        self.outbox.done(feed, message)
        self.runtime.count("LettersForwarded", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMonitor:
    """The monitor that reports the age of a feed's oldest message, and wakes the forwarder."""

    outbox: Outbox
    wake: Callable[[str], None]
    runtime: Runtime

    def run(self, feed: str) -> int | None:
        """Wake the forwarder if a message of *feed* waits; return the time of the next visit."""
        waiting = self.outbox.pending(feed)
        if not waiting:
            return None
        at_ms = waiting[0].at_ms
        self.runtime.count(
            "OutboxAge", max(0, self.runtime.clock() - at_ms) // 1000 if at_ms else 0
        )
        self.wake(feed)
        return NEXT_SWEEP
