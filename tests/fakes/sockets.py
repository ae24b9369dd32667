"""Clients and functions that only write down what reaches them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tidings.core.websocket.connections import Outcome

if TYPE_CHECKING:
    from tidings.core.followers.leases import Observation


class MemorySockets:
    """Implements `Sockets`: keeps each connection's messages in the order they were sent.

    A connection with its id in *gone* has left; one in *busy* accepts nothing for now, one in
    *refused* never. Messages to one in *unknown* are held in *late*, unknown to the sender.
    """

    def __init__(self) -> None:
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self.gone: set[str] = set()
        self.busy: set[str] = set()
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.late: list[tuple[str, str]] = []
        self.closed: list[str] = []

    def send(self, connection_id: str, frame: str) -> Outcome:
        if connection_id in self.gone:
            return Outcome.GONE
        if connection_id in self.busy:
            return Outcome.BUSY
        if connection_id in self.refused:
            return Outcome.REFUSED
        if connection_id in self.unknown:
            self.late.append((connection_id, frame))
            return Outcome.UNKNOWN
        self.sent[connection_id].append(frame)
        return Outcome.SENT

    def close(self, connection_id: str) -> None:
        if connection_id not in self.gone:
            self.closed.append(connection_id)
            self.gone.add(connection_id)


class MemoryWaker:
    """Implements `Waker`: *woken* has (feed, follower), *replays* connection ids, in order.

    A wake-up with an observation is in *observations* instead.
    """

    def __init__(self) -> None:
        self.woken: list[tuple[str, str]] = []
        self.observations: list[tuple[str, str, Observation]] = []
        self.replays: list[str] = []

    def wake(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        if observation is None:
            self.woken.append((feed, follower))
        else:
            self.observations.append((feed, follower, observation))

    def replay(self, connection_id: str) -> None:
        self.replays.append(connection_id)
