"""WebSocket clients after PROTOCOL.md section 8: subscribe, ping, unsubscribe, come back.

A message of the feed is handled the moment it is sent; a message of a client travels a while. With
`late_frames` some frames arrive long after their sender has died and another one has continued
after it. Clients then stay on their connections, to receive them. Their senders die when in doubt,
because a living one closes the connection; and a frame is late by more than a lease, because
nothing newer is sent before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.consumer import LIVE, RESET, Session, new_consumer
from tests.simulation.functions import FEED
from tests.simulation.model import Broken, Place
from tests.simulation.world import World

_ANSWER_MS = 10_000  # 8.7: no answer within this means connect again
_SWALLOW_MS = 3_000
_THINK_MS = (300, 3_000, 20_000)  # some clients are restless
_SERVED = ("catching-up", "joining", "live")
_NOWHERE = (0, False, -1)
LATE_RATES: Final = {"send_unanswered": 0.05, "crash_in_doubt": 0.8}
LATE_LEADS_TO: Final = ("frame came late", "what came again was left out")
_LATE_MS: Final = (60_000, 150_000)
# Whatever would end a connection, or take its subscription away, before a late frame comes.
_NEVER: Final = (
    *("absent", "crash_amid_sends", "hang_up", "impatient", "lull"),
    *("throttle_long", "unsubscribe", "vanish"),
)


class Caller:
    """One end of a connection: *connection_id*, empty without one."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.connection_id = ""
        self.connections = 0

    @property
    def connected(self) -> bool:
        return self.connection_id != ""

    def _hear(self, text: str) -> None:
        raise NotImplementedError

    def _standing(self) -> object:
        """Return the state to record in the history when it leaves."""
        raise NotImplementedError

    def _connect(self) -> bool:
        self.connections += 1
        connection_id = f"{self.name}.{self.connections}"
        opened: list[bool] = []
        self.world.connect(connection_id, lambda: opened.append(True))
        if not self._until(lambda: bool(opened)):
            return False
        self.connection_id = connection_id
        self.world.stores.sockets.heard[connection_id] = self._hear
        self.world.stores.sockets.closed[connection_id] = self._closed
        return True

    def _leave(self, why: str) -> None:
        """Close the connection; the gateway may notify the feed."""
        if not self.connected:
            return
        self.world.machine.note(self.name, why, self._standing())
        self.world.stores.sockets.heard.pop(self.connection_id, None)
        self.world.stores.sockets.closed.pop(self.connection_id, None)
        self.world.disconnect(self.connection_id)
        self._closed()

    def _vanish(self) -> None:
        """Disappear silently: messages sent for a while are accepted and lost."""
        lines, connection_id = self.world.stores.sockets, self.connection_id
        lines.swallowing.add(connection_id)
        self.world.scheduler.after(_SWALLOW_MS, lambda: lines.swallowing.discard(connection_id))
        self._leave("vanishes")

    def _closed(self) -> None:
        self.connection_id = ""

    def _say(self, **message: Any) -> None:
        connection_id, text = self.connection_id, json.dumps(message)
        delay = self.world.random.uniform(5, 60)
        self.world.scheduler.after(delay, lambda: self.world.receive(connection_id, text))

    def _until(self, true: Callable[[], bool]) -> bool:
        return self.world.wait_for(true, _ANSWER_MS, 100)


class SocketClient(Caller):
    """*session* is the subscription it has now, None without one."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.consumer = new_consumer(world, name)
        self.session: Session | None = None
        self.state = ""  # from the last pong
        self._think_ms = world.random.choice(_THINK_MS)
        self._asked_at = 0  # the frontier when it subscribed
        self._replies: list[dict[str, Any]] = []
        self._heard_to = _NOWHERE
        world.scheduler.spawn(name, self._live)

    # --- the life of a client -------------------------------------------------------------------

    def _live(self) -> None:
        while True:
            self.world.stay_away()
            if self.world.sleep_through_lull() and self.world.random.random() < 0.5:
                self.consumer = new_consumer(self.world, self.name)
            if self._connect():
                while self.connected and self._subscribed() and self._stay():
                    pass
            self._leave("gives up")
            self.world.scheduler.sleep(self.world.random.uniform(100, 3_000))

    def _stay(self) -> bool:
        """Listen until another subscription is due; True to subscribe again on this connection."""
        faults = self.world.faults
        while self.connected:
            self.world.scheduler.sleep(self.world.random.uniform(50, self._think_ms))
            if self.world.in_lull or faults.strikes("hang_up"):
                return False
            if faults.strikes("vanish"):
                self._vanish()
                return False
            if faults.strikes("unsubscribe"):
                return self._unsubscribe()
            if not self._ping():
                return False
        return False

    def _closed(self) -> None:
        super()._closed()
        self.session = None

    def _standing(self) -> object:
        return self.consumer.cursor

    # --- what it says ---------------------------------------------------------------------------

    def _ask(self, reply: str, **message: Any) -> dict[str, Any] | None:
        """Say it and wait for *reply*; None when it does not come."""
        self._replies.clear()
        self._say(**message)

        def answer() -> dict[str, Any] | None:
            return next((each for each in self._replies if each.get("reply") == reply), None)

        self._until(lambda: not self.connected or answer() is not None)
        return answer() if self.connected else None

    def _subscribed(self) -> bool:
        consumer, wanted = self.consumer, self.consumer.wanted
        session = Session(consumer, lambda: self.world.gone_until(FEED))
        session.starts(consumer.cursor)
        self.session, self._heard_to = session, _NOWHERE
        filters: dict[str, Any] = {
            name: sorted(values)
            for name, values in (("types", wanted.types), ("parents", wanted.parents))
            if values is not None
        }
        if wanted.leave:
            filters["leave"] = True
        filters |= self._shows()
        resumes = len(consumer.cursor) == 24 and self.world.random.random() < 0.5
        ask = {"action": "resume", "cursor": consumer.cursor}
        if not resumes:
            ask = {"action": "subscribe", "from": consumer.cursor}
        if consumer.cursor == "now":
            consumer.forgets()
        self._asked_at = self.world.model.frontier
        self.world.stores.sockets.subscribed[self.connection_id] += 1
        if self.world.faults.strikes("impatient"):
            self._replies.clear()
            self._say(**ask, **filters)
            self.world.scheduler.sleep(self.world.random.uniform(50, 800))
            confirmed = any(each.get("reply") == "subscribed" for each in self._replies)
            # Two messages at a time may be handled in any order: if they were, begin again.
            return self._unsubscribe() and confirmed and self._subscribed()
        return self._ask("subscribed", **ask, **filters) is not None

    def _shows(self) -> dict[str, Any]:
        """Return its credential."""
        return {}

    def _unsubscribe(self) -> bool:
        if not self.connected or self._ask("unsubscribed", action="unsubscribe") is None:
            return False
        if self.world.random.random() < 0.5:
            self.consumer = new_consumer(self.world, self.name)
        return True

    def _ping(self) -> bool:
        pong = self._ask("pong", action="ping")
        self.state = pong["state"] if pong else ""
        return self.state in _SERVED

    # --- received frames --------------------------------------------------------------------------

    def _hear(self, frame: str) -> None:
        message = json.loads(frame)
        if "events" in message:
            self._events(message)
            return
        self._replies.append(message)
        if message.get("reply") == "subscribed" and self.session is not None:
            self._confirmed(message["cursor"])
        if message.get("reply") == "unsubscribed":
            self.session = None

    def _confirmed(self, cursor: str) -> None:
        """8.5: the feed vouches for everything after the cursor it confirms."""
        if self.consumer.cursor == "now":
            if Place.of(cursor).page < self._asked_at:
                raise Broken(f"{self.name}: now is {cursor}, the frontier is {self._asked_at}")
            self.consumer.cursor = cursor
            self.consumer.from_place = Place.of(cursor).at
        if self.session is not None and self.session.high is None:
            self.session.starts(cursor)

    def _events(self, message: dict[str, Any]) -> None:
        session, consumer = self.session, self.consumer
        if session is None:
            return
        told = message.get("cursor", "")
        for event in message["events"]:
            if self._ascends(event["id"] if event["event"] != RESET else told, event["event"]):
                session.event(event["id"], event["event"], event.get("data", {}))
                consumer.cursor = event["id"]  # 5.1; but see what the whole frame says
        if told and self._ascends(told, ""):
            session.cursor(told)
            consumer.cursor = told

    def _ascends(self, id: str, name: str) -> bool:
        """8.8: a late message, after newer ones, is dropped."""
        if len(id) != 24:
            return True
        place = Place.of(id)
        rank = (place.page, not place.replicates, place.slot)
        again = rank == self._heard_to and name not in ("", LIVE) and not place.replicates
        if rank < self._heard_to or again:
            self.world.faults.saw("what came again was left out")
            return False
        self._heard_to = rank
        return True


def late_frames(world: World) -> None:
    world.faults.add(LATE_RATES | dict.fromkeys(_NEVER, 0.0), LATE_LEADS_TO)
    world.late_frame_ms = _LATE_MS
