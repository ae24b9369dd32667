"""Forwarding: messages of the outbox are appended to the log, each one once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.core.model.json_body import NDJSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.effects import Clock, Count
    from tidings.core.ingest.ingest import Lines
    from tidings.core.ingest.outbox import OutboxMessage
    from tidings.core.ingest.stores import Outbox
    from tidings.core.log.append import Appender


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
