"""
Registering: what a listener says first makes it a registration, or ends the connection.

A registration is filed before it is answered and answered before any item. It starts where the
state stands, so that what is not in a bootstrap from the state comes as an item behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.guard import READ_ALL, credential
from tidings.core.errors import InvalidMessage, Rejected, TooLarge
from tidings.core.followers.lanes import follower_of
from tidings.core.followers.names import STATE
from tidings.core.model import events
from tidings.core.model.feeds import DEFAULT_FEED, check_known
from tidings.core.settings.resources import declared
from tidings.core.triton.registration import V1, Listener, answer, looks_like, parse
from tidings.core.websocket.connections import Outcome
from tidings.core.websocket.messages import act_of
from tidings.core.websocket.session import Act, Event, State, after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Guard
    from tidings.core.effects import Clock, Count
    from tidings.core.log.stores import Checkpoints
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.settings.resources import Resource
    from tidings.core.triton.stores import Registry
    from tidings.core.websocket.connections import Connection
    from tidings.core.websocket.lanes import Lanes
    from tidings.core.websocket.stores import ConnectionStore, Sockets

_ATTEMPTS = 5  # of a change of a connection that changes at the same time


def listens(connection: Connection, text: str) -> bool:
    """Whether *connection* is a listener's, by its handshake or by what it says first."""
    if connection.listener is not None:
        return True
    return connection.state is State.OPEN and looks_like(text)


@dataclass(frozen=True, slots=True)
class Registrar:
    connections: ConnectionStore
    registry: Registry
    lanes: Lanes
    sockets: Sockets
    checkpoints: Checkpoints
    profiles: ProfileStore
    guard: Guard
    feeds: frozenset[str]
    clock: Clock
    count: Count

    def hear(self, connection: Connection, text: str) -> None:
        """The first text registers; of all that follow only a ping is answered."""
        listener = connection.listener or Listener(V1, DEFAULT_FEED)
        if connection.feed:  # it has registered
            self._pong(connection, text)
            return
        try:
            resources = self._resources(listener.feed)
            request = parse(text, listener, resources)
            given = credential(request.password)
            allowed = READ_ALL.admit(self.guard, listener.feed, given)
        except Rejected as error:
            self._refuse(connection, str(error))
            return
        admitted = replace(connection, admission=allowed.admission)
        self._register(admitted, request.listener, resources)

    def _resources(self, feed: str) -> Mapping[str, Resource]:
        return declared(self.profiles.profile(check_known(feed, self.feeds)).resources)

    def _pong(self, connection: Connection, text: str) -> None:
        try:
            act = act_of(text)
        except (InvalidMessage, TooLarge):
            return  # the heartbeat of a listener, or anything else
        if act is Act.PING:
            idle = connection.state in (State.LEAVING, State.OPEN)  # another one took its place
            state = State.LIVE if idle else connection.state
            self.sockets.send(connection.id, events.reply("pong", state=state.value))

    def _refuse(self, connection: Connection, sentence: str) -> None:
        """API Gateway lets nobody say why it closes, so it is said before."""
        self.count("RegistrationsRefused", 1)
        self.sockets.send(connection.id, sentence)
        self._end(connection.id)

    def _register(
        self, connection: Connection, listener: Listener, resources: Mapping[str, Resource]
    ) -> None:
        joining = connection.changed(
            state=after(after(connection.state, Act.SUBSCRIBE), Event.REACHED_FRONTIER),
            feed=listener.feed,
            filter=listener.filter,
            lane=self.lanes.lane_for(listener.feed, connection.id),
            since=self.checkpoints.checkpoints(listener.feed).get(STATE, 0),
            runner_expires_ms=self.clock() + limits.REGISTERING_MS,
            listener=listener,
        )
        replaced = self.registry.enter(listener.feed, connection.id, listener)
        stands = self.connections.update(connection, joining)
        if not stands:
            self.registry.leave(listener.feed, connection.id, listener)
        for other in replaced:
            self._take_from(other, listener)
        if stands:
            self._confirm(joining, listener, resources)

    def _confirm(
        self, joining: Connection, listener: Listener, resources: Mapping[str, Resource]
    ) -> None:
        if self.sockets.send(joining.id, answer(listener, resources)) is not Outcome.SENT:
            self._end(joining.id)  # an item must not be the first it hears
            return
        self.count("ListenersRegistered", 1)
        self.lanes.hand_over(joining)
        self.lanes.wake(joining)

    def _take_from(self, connection_id: str, listener: Listener) -> None:
        """
        Stop sending the connection what *listener* has registered for, and leave it open.

        Its client would register again if it was closed, and take everything back.
        """
        taken = {kind.resource for kind in listener.kinds}
        for _ in range(_ATTEMPTS):
            other = self.connections.get(connection_id)
            if other is None:
                return
            if other.listener is None or not other.feed:
                break  # it is registering at this moment
            rest = tuple(kind for kind in other.listener.kinds if kind.resource not in taken)
            if self._narrowed(other, replace(other.listener, kinds=rest)):
                return
        self._end(connection_id)

    def _narrowed(self, other: Connection, listener: Listener) -> bool:
        """Leave *other* as *listener*; False if the connection changed in the meantime."""
        served = other.state in (State.JOINING, State.LIVE)
        since, state = other.since, other.state
        if served:
            state = after(state, Act.UNSUBSCRIBE)
        if other.state is State.LIVE:
            pushed = self.checkpoints.checkpoints(other.feed)
            since = pushed.get(follower_of(other.lane), since)
        narrowed = other.changed(state=state, since=since, listener=listener)
        if not self.connections.update(other, narrowed):
            return False
        if served:
            self.lanes.take_back(narrowed)
            self.lanes.wake(narrowed)
        return True

    def _end(self, connection_id: str) -> None:
        self.sockets.close(connection_id)
        self.connections.remove(connection_id)
