"""Delivering messages to one connection: all of them in order, or the connection is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import KeyEnded, Unavailable
from tidings.core.model import events
from tidings.core.websocket.connections import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.effects import Count, Sleep
    from tidings.core.websocket.stores import ConnectionStore, Sockets


@dataclass(frozen=True, slots=True)
class Delivery:
    sockets: Sockets
    connections: ConnectionStore
    sleep: Sleep
    count: Count

    def send(self, connection_id: str, messages: Sequence[str]) -> bool:
        """
        Send *messages*; False when the connection is gone or had to be cut.

        Only what is known not to have arrived is repeated, with bounded attempts. Any other
        failure cuts the client, so that it comes back and resumes from its cursor: nothing is
        ever skipped on an open connection, and nothing follows a message that may still arrive.
        """
        for message in messages:
            outcome = self._send(connection_id, message)
            if outcome is not Outcome.SENT:
                self._forget(connection_id, outcome)
                return False
        self.count("FramesSent", len(messages))
        return True

    def _send(self, connection_id: str, message: str) -> Outcome:
        outcome = self.sockets.send(connection_id, message)
        for attempt in range(limits.SEND_ATTEMPTS_MAX - 1):
            if outcome is not Outcome.BUSY:
                break
            self.sleep(limits.SEND_BACKOFF_MS << attempt)
            outcome = self.sockets.send(connection_id, message)
        return outcome

    def cut(self, connection_id: str) -> None:
        """
        Close the connection, then forget it: its client knows before we do.

        Where it cannot be closed it is forgotten all the same: it must not be sent anything
        more. Its client's next ping is answered with another state than it expects.
        """
        self._close(connection_id)
        self.count("ConnectionsClosed", 1)
        self.connections.remove(connection_id)

    def _close(self, connection_id: str) -> None:
        for attempt in range(limits.SEND_ATTEMPTS_MAX):
            try:
                self.sockets.close(connection_id)
            except Unavailable:
                self.sleep(limits.SEND_BACKOFF_MS << attempt)
            else:
                return

    def end(self, connection_id: str) -> None:
        """As `cut`, for the key it was let in with has ended; its client hears so first."""
        ended = KeyEnded("was revoked or has expired, subscribe with another one", field="key")
        self.sockets.send(connection_id, events.error(ended.body()))
        self.cut(connection_id)

    def _forget(self, connection_id: str, outcome: Outcome) -> None:
        """Exactly this connection, never the one whose message led here."""
        if outcome is Outcome.GONE:
            self.count("ConnectionsGone", 1)
            self.connections.remove(connection_id)
            return
        if outcome is Outcome.REFUSED:
            self.count("SendsRefused", 1)
        elif outcome is Outcome.UNKNOWN:
            self.count("SendsUnknown", 1)
        self.cut(connection_id)
