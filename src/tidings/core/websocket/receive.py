"""Handle the messages of WebSocket clients, including the registration of Triton's listeners.

A message is one JSON object with an `action`. The table in `session` has the actions that are
allowed in each state. The receiver first stores a subscription, then confirms it, and then wakes a
lane, so that a confirmed subscription is always stored.

A listener is a client of Triton's protocol. Its registration is stored before the answer is sent,
and the answer is sent before any item. The items begin after the checkpoint of the follower
`state`. So an operation that is missing in a bootstrap from the state is sent as an item.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.auth.guard import ALL, READ, READ_ALL, credential
from tidings.core.errors import InvalidCursor, InvalidMessage, Rejected, TooLarge, Unavailable
from tidings.core.model import cursors, events, filters
from tidings.core.model.cursors import Now
from tidings.core.model.events import GZIP, NO_OPTIONS, OPTIONS, EventOptions
from tidings.core.model.feeds import DEFAULT_FEED, STATE, follower_of, public_name
from tidings.core.model.json_body import decode_json
from tidings.core.settings.values import by_name
from tidings.core.triton.registration import V1, Listener, answer, looks_like, parse
from tidings.core.websocket.connections import Outcome
from tidings.core.websocket.session import Act, Event, State, after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.catchup.catchup import CatchUp, Progress
    from tidings.core.log.stores import Checkpoints
    from tidings.core.model.feeds import FeedNames
    from tidings.core.model.filters import Filter
    from tidings.core.settings.values import Resource
    from tidings.core.triton.registration import Registry
    from tidings.core.websocket.connections import Connection, Lanes
    from tidings.core.websocket.send import Delivery


_NOW = cursors.Now()


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a client.

    *cursor* is the cursor as the client sent it, and *at* is the parsed cursor. *leave* is True if
    the client requested `leave` events, even if *filter* names no parents. *encoding* is a known
    encoding or "". *options* are the other switches.
    """

    act: Act
    feed: str = ""
    filter: filters.Filter = filters.EVERYTHING
    cursor: str = ""
    at: cursors.Cursor = _NOW
    password: str | None = field(default=None, repr=False)
    leave: bool = False
    encoding: str = ""
    options: EventOptions = NO_OPTIONS


def parse_message(text: str, feed_names: FeedNames) -> Message:
    """Parse *text*.

    Raises:
        InvalidMessage, InvalidCursor, InvalidFilter, InvalidFeed, UnknownFeed, TooLarge: the
            message breaks the rule that the error names.
    """
    raw = _object(text)
    act = _act(raw.get("action"))
    if act not in (Act.SUBSCRIBE, Act.RESUME):
        return Message(act)
    cursor, leave = _cursor(raw, act), _switch(raw, "leave")
    # With an unknown encoding, the client receives plain messages, which all clients can read.
    password = raw.get("password")
    if password is not None and not isinstance(password, str):
        raise InvalidMessage("must be a string", field="password")
    return Message(
        act=act,
        feed=feed_names.key(_text(raw, "feed", DEFAULT_FEED)),
        filter=filters.from_lists(
            raw, InvalidMessage, leave=leave, erasures=_switch(raw, filters.ERASURES)
        ),
        cursor=cursor,
        at=cursors.parse(cursor),
        password=password,
        leave=leave,
        encoding=GZIP if _text(raw, "encoding", "") == GZIP else "",
        options=EventOptions(*(_switch(raw, name) for name in OPTIONS)),
    )


def act_of(text: str) -> Act:
    """Return the action of *text* and ignore its other fields.

    Raises:
        InvalidMessage, TooLarge: *text* is not a message with a known action.
    """
    return _act(_object(text).get("action"))


def _object(text: str) -> dict[str, Any]:
    """Decode a JSON object. Errors do not repeat the text, because it may hold a password."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > limits.MESSAGE_BYTES_MAX:
        rule = f"holds at most {limits.MESSAGE_BYTES_MAX} bytes, got {len(encoded)}"
        raise TooLarge(rule, field="message")
    try:
        raw = decode_json(encoded, "message")
    except Rejected as error:
        raise InvalidMessage(error.rule, field="message") from None
    if not isinstance(raw, dict):
        raise InvalidMessage("must be a JSON object", field="message")
    return raw


def _act(name: object) -> Act:
    for act in Act:
        if act.value == name:
            return act
    rule = f"must be one of {', '.join(act.value for act in Act)}"
    raise InvalidMessage(rule, field="action", value=name)


def _text(raw: dict[str, Any], field: str, default: str) -> str:
    value = raw.get(field, default)
    if not isinstance(value, str):
        raise InvalidMessage("must be a string", field=field, value=value)
    return value


def _switch(raw: dict[str, Any], field: str) -> bool:
    value = raw.get(field)
    if value is not None and not isinstance(value, bool):
        raise InvalidMessage("must be true or false", field=field, value=value)
    return value is True


def _cursor(raw: dict[str, Any], act: Act) -> str:
    if act is Act.SUBSCRIBE:
        return _text(raw, "from", cursors.NOW)
    cursor = _text(raw, "cursor", "")
    if not cursor:
        raise InvalidCursor("is required to resume", field="cursor", value=raw.get("cursor"))
    return cursor


# Maximum number of attempts to change a connection. An attempt fails if the connection is changed
# concurrently.
_ATTEMPTS = 5


def listens(connection: Connection, text: str) -> bool:
    """Return True if the handshake or the first message shows that the client is a listener."""
    if connection.listener is not None:
        return True
    return connection.state is State.OPEN and looks_like(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registrar:
    registry: Registry
    lanes: Lanes
    delivery: Delivery
    checkpoints: Checkpoints
    guard: Guard

    def receive(self, connection: Connection, text: str) -> None:
        """Register the listener if *text* is its first message. After that, answer only pings."""
        listener = connection.listener or Listener(V1, DEFAULT_FEED)
        if connection.feed:  # the listener has registered
            self._pong(connection, text)
            return
        try:
            listener = replace(listener, feed=self.guard.feed_names.key(listener.feed))
            resources = by_name(self.guard.profiles.profile(listener.feed).resources)
            request = parse(text, listener, resources)
            given = credential(request.password)
            allowed = READ_ALL.admit(self.guard, listener.feed, given)
        except Rejected as error:
            # API Gateway cannot send a reason with the close.
            self.delivery.runtime.count("RegistrationsRefused", 1)
            self.delivery.sockets.send(connection.id, str(error))
            self._end(connection.id)
            return
        admitted = replace(connection, admission=allowed.admission)
        self._register(admitted, request.listener, resources)

    def _pong(self, connection: Connection, text: str) -> None:
        try:
            act = act_of(text)
        except (InvalidMessage, TooLarge):
            return  # ignore the heartbeat of a listener, and any other text
        if act is Act.PING:
            idle = connection.state in (State.LEAVING, State.OPEN)  # others may have its resources
            state = State.LIVE if idle else connection.state
            self.delivery.sockets.send(connection.id, events.reply("pong", state=state.value))

    def _register(
        self, connection: Connection, listener: Listener, resources: Mapping[str, Resource]
    ) -> None:
        joining = connection.with_fields(
            state=after(after(connection.state, Act.SUBSCRIBE), Event.REACHED_FRONTIER),
            feed=listener.feed,
            filter=listener.filter,
            lane=self.lanes.lane_for(listener.feed, connection.id),
            since=self.checkpoints.checkpoints(listener.feed).get(STATE, 0),
            runner_expires_ms=self.delivery.runtime.clock() + limits.REGISTERING_MS,
            listener=listener,
        )
        replaced = self.registry.enter(listener.feed, connection.id, listener)
        is_updated = self.delivery.connections.update(connection, joining)
        if not is_updated:
            self.registry.leave(listener.feed, connection.id, listener)
        for other in replaced:
            self._take_from(other, listener)
        if is_updated:
            self._confirm(joining, listener, resources)

    def _confirm(
        self, joining: Connection, listener: Listener, resources: Mapping[str, Resource]
    ) -> None:
        if self.delivery.sockets.send(joining.id, answer(listener, resources)) is not Outcome.SENT:
            self._end(joining.id)  # an item must not be the first message that the client gets
            return
        self.delivery.runtime.count("ListenersRegistered", 1)
        self.lanes.hand_over(joining)
        self.lanes.wake(joining)

    def _take_from(self, connection_id: str, listener: Listener) -> None:
        """Remove the resources of *listener* from another connection, which stays open.

        If the connection were closed, its client would register again and take all resources back.
        """
        own_resources = {kind.resource for kind in listener.kinds}
        for _ in range(_ATTEMPTS):
            other = self.delivery.connections.get(connection_id)
            if other is None:
                return
            if other.listener is None or not other.feed:
                break  # the other connection is registering now
            rest = tuple(
                kind for kind in other.listener.kinds if kind.resource not in own_resources
            )
            if self._remove_kinds(other, replace(other.listener, kinds=rest)):
                return
        self._end(connection_id)

    def _remove_kinds(self, other: Connection, listener: Listener) -> bool:
        """Store *listener* in *other*; return False if the connection changed in the meantime."""
        served = other.state in (State.JOINING, State.LIVE)
        since, state = other.since, other.state
        if served:
            state = after(state, Act.UNSUBSCRIBE)
        if other.state is State.LIVE:
            pushed = self.checkpoints.checkpoints(other.feed)
            since = pushed.get(follower_of(other.lane), since)
        narrowed = other.with_fields(state=state, since=since, listener=listener)
        if not self.delivery.connections.update(other, narrowed):
            return False
        if served:
            self.lanes.take_back(narrowed)
            self.lanes.wake(narrowed)
        return True

    def _end(self, connection_id: str) -> None:
        self.delivery.sockets.close(connection_id)
        self.delivery.connections.remove(connection_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    lanes: Lanes
    delivery: Delivery
    catch_up: CatchUp
    guard: Guard
    registrar: Registrar

    def receive(self, connection_id: str, text: str) -> None:
        """Handle one message. Every answer, including errors, is sent to the same connection.

        Raises:
            Unavailable: a store did not answer; the client should repeat its message.
        """
        connection = self.delivery.connections.get(connection_id)
        if connection is not None and listens(connection, text):
            self.registrar.receive(connection, text)
            return
        try:
            message = parse_message(text, self.guard.feed_names)
            allowed = self._admit(message)
            self._act(connection_id, message, connection, allowed)
        except Rejected as error:
            self.delivery.sockets.send(connection_id, events.error(error.body()))

    def _admit(self, message: Message) -> Allowed:
        """Return the part of the feed that the client may read."""
        if message.act not in (Act.SUBSCRIBE, Act.RESUME):
            return ALL
        given = credential(message.password)
        allowed = READ.admit(self.guard, message.feed, given)
        self.guard.check_leave(message.feed, _parse_filter(message, allowed))
        return allowed

    def _act(
        self, connection_id: str, message: Message, connection: Connection | None, allowed: Allowed
    ) -> None:
        for _ in range(_ATTEMPTS):
            if connection is None:
                self.delivery.sockets.close(connection_id)  # the connection is not stored any more
                return
            if self._is_unused(connection, message.act):
                self.delivery.cut(connection_id)
                return
            if self._step(connection, message, allowed):
                return
            connection = self.delivery.connections.get(connection_id)
        raise Unavailable(f"connection {connection_id} changed {_ATTEMPTS} times in a row")

    def _is_unused(self, connection: Connection, act: Act) -> bool:
        """Return True if the client had time to subscribe, and *act* shows that it does not."""
        if connection.feed or act in (Act.SUBSCRIBE, Act.RESUME):
            return False
        open_ms = self.delivery.runtime.clock() - connection.opened_ms
        return open_ms > limits.SUBSCRIBE_S * 1000

    def _step(self, connection: Connection, message: Message, allowed: Allowed) -> bool:
        """Try to apply the message; return False if the connection changed in the meantime."""
        state = after(connection.state, message.act)
        match message.act:
            case Act.PING:
                pong = events.reply("pong", state=connection.state.value)
                self.delivery.sockets.send(connection.id, pong)
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
        subscribed = connection.with_fields(
            state=state,
            feed=message.feed,
            filter=_parse_filter(message, allowed),
            admission=allowed.admission,
            encoding=message.encoding,
            options=message.options,
            progress=progress.encode(),
        )
        if isinstance(message.at, Now):
            return self._join(connection, subscribed, progress)
        if not self.delivery.connections.update(connection, subscribed):
            return False
        self._confirm(subscribed, message.cursor)
        self.lanes.waker.replay(connection.id)
        return True

    def _join(self, old: Connection, subscribed: Connection, progress: Progress) -> bool:
        """Hand the connection over to push without a replay, because it starts at the frontier."""
        state = after(subscribed.state, Event.REACHED_FRONTIER)
        lane = self.lanes.lane_for(subscribed.feed, subscribed.id)
        joining = replace(subscribed, state=state, progress="", since=progress.page, lane=lane)
        if not self.delivery.connections.update(old, joining):
            return False
        self.lanes.hand_over(joining)
        self._confirm(joining, progress.cursor)
        self.lanes.wake(joining)
        return True

    def _confirm(self, connection: Connection, cursor: str) -> None:
        confirmed = events.reply("subscribed", feed=public_name(connection.feed), cursor=cursor)
        self.delivery.sockets.send(connection.id, confirmed)

    def _unsubscribe(self, connection: Connection, state: State) -> bool:
        if not self.delivery.connections.update(connection, connection.with_fields(state=state)):
            return False
        match connection.state:
            case State.OPEN:
                self.delivery.sockets.send(connection.id, events.reply("unsubscribed"))
            case State.CATCHING_UP:
                self.lanes.waker.replay(connection.id)
            case _:
                self.lanes.take_back(connection)
                self.lanes.wake(connection)
        return True


def _parse_filter(message: Message, allowed: Allowed) -> Filter:
    return allowed.narrow(message.filter, leave=message.leave)
