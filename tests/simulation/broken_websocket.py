"""Listeners, deliveries, keys and a client, with one rule taken out."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from tests.fakes import MemoryProfiles
from tests.simulation.parts import instead
from tests.simulation.sockets import SocketClient
from tidings.client.listener import MemoryBuffer
from tidings.core import limits
from tidings.core.auth.keys import KeyIssuer
from tidings.core.auth.quotas import ReadCharge
from tidings.core.followers.follower import STATE
from tidings.core.ingest.write_bounds import StoredObjectsInBound
from tidings.core.log.stores import Checkpoints
from tidings.core.model.feeds import PUSH
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Resource
from tidings.core.triton.registration import Listener
from tidings.core.websocket import send
from tidings.core.websocket.connections import Change, Connection, Outcome, Subscription
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.receive import Registrar
from tidings.core.websocket.replay import Replayer
from tidings.core.websocket.send import Request, Send, Sockets, Wait
from tidings.core.websocket.session import State


@dataclass
class _OfPush:
    """Implements `Checkpoints`: says of the state what is true of push."""

    kept: Checkpoints

    def checkpoints(self, feed: str) -> dict[str, int]:
        return {STATE: self.kept.checkpoints(feed).get(PUSH, 0)}


@dataclass
class _Careless:
    """Implements `Sockets`: says that all was sent."""

    sockets: Sockets

    def send(self, connection_id: str, frame: str) -> Outcome:
        self.sockets.send(connection_id, frame)
        return Outcome.SENT

    def close(self, connection_id: str) -> None:
        self.sockets.close(connection_id)


class LateRegistrar(Registrar):
    """A registration starts at the position of push, though the bootstrap reads the state."""

    def _register(
        self, connection: Connection, listener: Listener, resources: Mapping[str, Resource]
    ) -> None:
        late = replace(self, checkpoints=_OfPush(self.checkpoints))
        Registrar._register(late, connection, listener, resources)


class CarelessRegistrar(Registrar):
    """Whether the answer was taken is not looked at."""

    def _confirm(
        self, joining: Connection, listener: Listener, resources: Mapping[str, Resource]
    ) -> None:
        careless = replace(
            self, delivery=replace(self.delivery, sockets=_Careless(self.delivery.sockets))
        )
        Registrar._confirm(careless, joining, listener, resources)


class DroppingBuffer(MemoryBuffer):
    """An item without room is dropped without notice."""

    def put(self, item: str) -> bool:
        super().put(item)
        return True


def _again(request: Send) -> Generator[Request | Wait, Outcome | None, Outcome]:
    """An unanswered message is sent again, as if it could not arrive any more."""
    outcome: Outcome | None = None
    for _ in range(limits.SEND_ATTEMPTS_MAX):
        outcome = yield request
        if outcome not in (Outcome.BUSY, Outcome.UNKNOWN):
            break
    assert outcome is not None
    return outcome


def _whatever(self: SocketClient, id: str, name: str) -> bool:
    """Handle every message, however late."""
    return True


repeats_all = instead(send, "_outcome_of", _again)
takes_all = instead(SocketClient, "_ascends", _whatever)


class LeapingPusher(Pusher):
    """A lane lets a connection skip the page that it would send next."""

    def _move_connection(self, feed: str, change: Change, checkpoint: int) -> Connection | None:
        return super()._move_connection(feed, change, checkpoint + 1)


class CarelessPusher(Pusher):
    """A connection receives everything after it was accepted once."""

    def _disconnect_ended(self, *_: object) -> None:
        pass


@dataclass
class _AsItWas(MemoryProfiles):
    """The profiles as they were at the first read."""

    standing: Profile

    def profile(self, feed: str) -> Profile:
        return self.standing


def asks_before_it_reads() -> AbstractContextManager[object]:
    """Let a replay check for endings before it reads."""
    step = Replayer._step

    def asking_first(
        replayer: Replayer, connection: Connection, charge: ReadCharge
    ) -> Connection | None:
        before = _AsItWas(replayer.profiles.profile(connection.feed))
        early: Any = replace(replayer, profiles=before)
        return step(early, connection, charge)

    return instead(Replayer, "_step", asking_first)()


asked_early = instead(StoredObjectsInBound, "check_before", lambda precondition, number: None)
unnoted = instead(KeyIssuer, "_note", lambda issuer, feed, ended: None)


class ClingingPusher(Pusher):
    """A lane releases a connection and continues to send to it."""

    def _move(self, feed: str, change: Change, checkpoint: int) -> None:
        kept, self.lane.subscriptions = self.lane.subscriptions, _Clinging()  # type: ignore[assignment]
        try:
            super()._move(feed, change, checkpoint)
        finally:
            self.lane.subscriptions = kept


class _Clinging:
    def remove(self, lane: str, subscription: Subscription) -> None:
        """Keep the subscription."""


class GraspingPusher(Pusher):
    """A lane accepts every connection named in its inbox, also one that now joins another lane."""

    def _is_ours(self, feed: str, connection: Connection, state: State) -> bool:
        return (connection.feed, connection.state) == (feed, state)


class DeafPusher(Pusher):
    """The first lane wakes no other one."""

    def _wake_lanes(self, feed: str, at_ms: int) -> None:
        """Wakes no lane."""
