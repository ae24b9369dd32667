"""Send a connection the events after the client's cursor, then hand it over to the push follower.

One replay at a time serves a connection. The replay stores its own id in the item of the
connection. It saves the item after each step, and a save fails if another process has changed the
item.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.auth.quotas import free
from tidings.core.catchup.catchup import CatchUp, Progress
from tidings.core.catchup.matching import with_ref
from tidings.core.effects import is_ahead
from tidings.core.model.events import pack, to_traced_json
from tidings.core.settings.profiles import endings_at
from tidings.core.websocket.push import release_from_push
from tidings.core.websocket.session import Event, State, after

if TYPE_CHECKING:
    from tidings.core.auth.quotas import Charges, ReadCharge
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.websocket.connections import Connection, Lanes
    from tidings.core.websocket.send import Delivery


class Room(Protocol):
    """The room in the queue of each client, on a host that queues messages."""

    def has_room(self, connection_id: str) -> bool:
        """Return True if the client has read enough of its queue to get more events."""

    def replay_with_room(self, connection_id: str) -> None:
        """Replay to the connection as soon as its queue has room, which may be now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayer:
    """The replay of events to connections.

    If *room* is None, a send waits for its client, or fails. Otherwise a run ends if its client has
    too much unread data, and the next run begins when the client has read enough. A client that
    reads slowly therefore occupies no thread in the meantime.
    """

    lanes: Lanes
    delivery: Delivery
    catch_up: CatchUp
    profiles: ProfileStore
    charges: Charges = free
    room: Room | None = None

    def run(self, connection_id: str) -> None:
        """Send events up to the frontier, or until the run's time or the key's rate is used up."""
        connection = self._sign(connection_id)
        if connection is None:
            return
        try:
            self._replay(connection)
        except Exception:
            # Another replay may repeat events that were sent but not saved as progress.
            with suppress(Exception):  # report the error that ended the replay, not this one
                current = self.delivery.connections.get(connection_id)
                if current is not None and current.runner == connection.runner and serves(current):
                    self._save(current, current.with_fields(runner="", runner_expires_ms=0))
            raise

    def _replay(self, connection: Connection) -> None:
        until = self.delivery.runtime.steady() + limits.REPLAY_RUN_MS
        charge = self.charges(connection.feed, connection.admission)
        charge.due = True  # reads by other clients of the key may have used up its rate
        while not (rests := charge.wait_ms() > 0) and self.delivery.runtime.steady() < until:
            if not (self.room is None or self.room.has_room(connection.id)):
                break
            stepped = self._step(connection, charge)
            if stepped is None:
                return
            connection = stepped
        self._sign_off(connection, rests=rests)

    def _sign(self, connection_id: str) -> Connection | None:
        """Acquire the connection for this run; return None if another process serves it."""
        connection = self.delivery.connections.get(connection_id)
        if connection is None or not serves(connection):
            return None
        now = self.delivery.runtime.clock()
        if connection.runner and is_ahead(
            connection.runner_expires_ms, now, limits.REPLAY_LEASE_MS
        ):
            return None
        signed = connection.with_fields(
            runner=self.delivery.runtime.new_id(), runner_expires_ms=now + limits.REPLAY_LEASE_MS
        )
        return self._save(connection, signed)

    def _sign_off(self, connection: Connection, *, rests: bool) -> None:
        """Release the connection and request the next run.

        If *rests* is True, the rate of the key is used up, so the next sweep requests the run.
        """
        saved = self._save(connection, connection.with_fields(runner="", runner_expires_ms=0))
        if saved is not None and saved.state is State.LEAVING:
            release_from_push(
                self.delivery, saved
            )  # the client unsubscribed before this run released the connection
        elif saved is not None and not rests:
            if self.room is None:
                self.lanes.waker.replay(connection.id)
            else:
                self.room.replay_with_room(connection.id)

    def _step(self, connection: Connection, charge: ReadCharge) -> Connection | None:
        """Send the next events and save the progress; return None when the replay is over."""
        if connection.state is State.LEAVING:
            release_from_push(self.delivery, connection)
            return None
        progress = Progress.decode(connection.progress)
        step = self.catch_up.step(connection.feed, progress, connection.filter)
        charge.add(step.size)
        # Read the profile after the step, because the step may take long. All events of the step
        # were committed before this read, so no event is sent that was committed after the end of
        # the key.
        profile = self.profiles.profile(connection.feed)
        endings = endings_at(self.profiles, connection.feed)
        if connection.admission.has_ended(endings, self.delivery.runtime.clock()):
            self.delivery.end(connection.id)
            return None
        if step.events or step.progress.cursor != progress.cursor:
            linked = (with_ref(event, profile.object_url) for event in step.events)
            events = map(to_traced_json, map(connection.options.apply, linked))
            messages = list(pack(events, step.progress.cursor, connection.encoding))
            if not self.delivery.send(connection.id, messages):
                return None
        if step.at_frontier:
            return self._hand_over(connection, step.progress)
        return self._save(connection, connection.with_fields(progress=step.progress.encode()))

    def _hand_over(self, connection: Connection, progress: Progress) -> Connection | None:
        joining = connection.with_fields(
            state=after(connection.state, Event.REACHED_FRONTIER),
            progress="",
            since=progress.page,
            lane=self.lanes.lane_for(connection.feed, connection.id),
            runner="",
            runner_expires_ms=0,
        )
        saved = self._save(connection, joining)
        if saved is None or saved.state is not State.JOINING:
            return saved
        self.lanes.hand_over(saved)
        self.lanes.wake(saved)
        return None

    def _save(self, old: Connection, new: Connection) -> Connection | None:
        """Replace *old* by *new* and return *new*.

        If the client has unsubscribed in the meantime, store nothing and return the stored
        connection. Return None if another run serves the connection.
        """
        if self.delivery.connections.update(old, new):
            return new
        current = self.delivery.connections.get(old.id)
        ours = current is not None and current.runner == old.runner != ""
        return current if ours and current is not None and serves(current) else None


def serves(connection: Connection) -> bool:
    """Return True if a replay, and not push, serves *connection*."""
    if connection.state is State.LEAVING:
        return connection.progress != ""
    return connection.state is State.CATCHING_UP
