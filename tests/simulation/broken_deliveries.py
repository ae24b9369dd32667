"""Deliveries, and a client of theirs, with one rule taken out."""

from __future__ import annotations

from tidings.core import limits
from tidings.core.websocket.connections import Outcome
from tidings.core.websocket.send import Delivery

from tests.simulation.broken_relays import instead
from tests.simulation.sockets import SocketClient


def _again(self: Delivery, connection_id: str, message: str) -> Outcome:
    """What was not answered is sent again, as if it could not arrive any more."""
    outcome = self.sockets.send(connection_id, message)
    for _ in range(limits.SEND_ATTEMPTS_MAX - 1):
        if outcome not in (Outcome.BUSY, Outcome.UNKNOWN):
            break
        outcome = self.sockets.send(connection_id, message)
    return outcome


def _whatever(self: SocketClient, id: str, name: str) -> bool:
    """The client handles whatever comes, however late."""
    return True


repeats_all = instead(Delivery, "_send", _again)
takes_all = instead(SocketClient, "_ascends", _whatever)
