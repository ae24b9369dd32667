"""
Receiving: what a WebSocket client's message does to its session.

Writes first, confirms then, rings last: a confirmed subscription is always readable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core.auth.guard import ALL, READ, credential
from tidings.core.errors import Rejected, Unavailable
from tidings.core.model import events
from tidings.core.model.cursors import Now
from tidings.core.websocket.listener import listens
from tidings.core.websocket.messages import Message, parse
from tidings.core.websocket.session import Act, Event, State, after

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.catchup.catchup import CatchUp, Progress
    from tidings.core.followers.stores import Waker
    from tidings.core.model.filters import Filter
    from tidings.core.websocket.connections import Connection
    from tidings.core.websocket.lanes import Lanes
    from tidings.core.websocket.listener import Registrar
    from tidings.core.websocket.stores import ConnectionStore, Sockets

_UPDATE_ATTEMPTS = 5  # each loss means that the connection's server made a step meanwhile


@dataclass(frozen=True, slots=True)
class Receiver:
    connections: ConnectionStore
    lanes: Lanes
    sockets: Sockets
    waker: Waker
    catch_up: CatchUp
    feeds: frozenset[str]
    guard: Guard
    registrar: Registrar

    def receive(self, connection_id: str, text: str) -> None:
        """
        Act on one message; every answer, an error too, goes to the same connection.

        Raises:
            Unavailable: a store did not answer, the client repeats its message.
        """
        connection = self.connections.get(connection_id)
        if connection is not None and listens(connection, text):
            self.registrar.hear(connection, text)
            return
        try:
            message = parse(text, self.feeds)
            allowed = self._admit(message)
            self._act(connection_id, message, connection, allowed)
        except Rejected as error:
            self.sockets.send(connection_id, events.error(error.body()))

    def _admit(self, message: Message) -> Allowed:
        """
        What the client may have of what it asks for.

        Raises:
            Rejected: nothing; see `Guard`.
        """
        if message.act not in (Act.SUBSCRIBE, Act.RESUME):
            return ALL
        given = credential(message.password)
        allowed = READ.admit(self.guard, message.feed, given)
        self.guard.check_leave(message.feed, _wanted(message, allowed))
        return allowed

    def _act(
        self,
        connection_id: str,
        message: Message,
        connection: Connection | None,
        allowed: Allowed,
    ) -> None:
        for _ in range(_UPDATE_ATTEMPTS):
            if connection is None:
                self.sockets.close(connection_id)  # forgotten: the client has to come back
                return
            if self._step(connection, message, allowed):
                return
            connection = self.connections.get(connection_id)
        raise Unavailable(f"connection {connection_id} changed {_UPDATE_ATTEMPTS} times in a row")

    def _step(self, connection: Connection, message: Message, allowed: Allowed) -> bool:
        """One attempt; False when the connection changed under us."""
        state = after(connection.state, message.act)
        match message.act:
            case Act.PING:
                pong = events.reply("pong", state=connection.state.value)
                self.sockets.send(connection.id, pong)
                return True
            case Act.KEEP_ALIVE:
                return True
            case Act.UNSUBSCRIBE:
                return self._unsubscribe(connection, state)
            case _:
                return self._subscribe(connection, message, state, allowed)

    def _subscribe(
        self, connection: Connection, message: Message, state: State, allowed: Allowed
    ) -> bool:
        progress = self.catch_up.start(message.feed, message.at)
        subscribed = connection.changed(
            state=state,
            feed=message.feed,
            filter=_wanted(message, allowed),
            admission=allowed.admission,
            encoding=message.encoding,
            traced=message.traced,
            progress=progress.encode(),
        )
        if isinstance(message.at, Now):
            return self._join(connection, subscribed, progress)
        if not self.connections.update(connection, subscribed):
            return False
        self._confirm(subscribed, message.cursor)
        self.waker.replay(connection.id)
        return True

    def _join(self, old: Connection, subscribed: Connection, progress: Progress) -> bool:
        """From now on means nothing to catch up with: straight to the push follower."""
        state = after(subscribed.state, Event.REACHED_FRONTIER)
        lane = self.lanes.lane_for(subscribed.feed, subscribed.id)
        joining = replace(subscribed, state=state, progress="", since=progress.page, lane=lane)
        if not self.connections.update(old, joining):
            return False
        self.lanes.hand_over(joining)
        self._confirm(joining, progress.cursor)
        self.lanes.wake(joining)
        return True

    def _confirm(self, connection: Connection, cursor: str) -> None:
        confirmed = events.reply("subscribed", feed=connection.feed, cursor=cursor)
        self.sockets.send(connection.id, confirmed)

    def _unsubscribe(self, connection: Connection, state: State) -> bool:
        if not self.connections.update(connection, connection.changed(state=state)):
            return False
        match connection.state:
            case State.OPEN:
                self.sockets.send(connection.id, events.reply("unsubscribed"))
            case State.CATCHING_UP:
                self.waker.replay(connection.id)
            case _:
                self.lanes.take_back(connection)
                self.lanes.wake(connection)
        return True


def _wanted(message: Message, allowed: Allowed) -> Filter:
    return allowed.narrowed(message.filter, leave=message.leave)
