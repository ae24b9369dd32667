"""
Delivering messages to a connection: all of them in order, or the connection is cut.

What is sent next, and what follows from its outcome, is decided by generators that do no I/O. They
are driven by `Delivery` itself, one request after the other, or by an `Exchange`, which has the
requests of very many connections under way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits
from tidings.core.errors import KeyEnded, Unavailable
from tidings.core.model import events
from tidings.core.websocket.connections import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.effects import Count, Sleep, Spread
    from tidings.core.websocket.stores import ConnectionStore, Sockets


class Send(NamedTuple):
    """Send one message; answered with its outcome."""

    connection_id: str
    message: str


class Close(NamedTuple):
    """Cut the connection; answered with SENT, or UNKNOWN where nobody knows if it was cut."""

    connection_id: str


class Wait(NamedTuple):
    """Go on after so many milliseconds; answered with None."""

    ms: int


Request = Send | Close
Steps = Generator[Request | Wait, Outcome | None, None]
# Drive each delivery to its end, many at a time. An error of one is raised when all have ended.
Exchange = Callable[[Iterable[Steps]], None]


@dataclass(slots=True)
class Tally:
    """What became of deliveries: messages *sent*, to who got all, and connections *lost*."""

    sent: int = 0
    lost: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Without an *exchange* one connection is served after the other."""

    sockets: Sockets
    connections: ConnectionStore
    sleep: Sleep
    count: Count
    exchange: Exchange | None = None

    def send(self, connection_id: str, messages: Sequence[str]) -> bool:
        """
        Send *messages*; False when the connection is gone or had to be cut.

        Only what is known not to have arrived is repeated, with bounded attempts. Any other
        failure cuts the client, so that it comes back and resumes from its cursor: nothing is
        ever skipped on an open connection, and nothing follows a message that may still arrive.
        """
        tally = Tally()
        self._drive(self.steps(connection_id, messages, tally))
        if tally.lost:
            self.connections.remove(connection_id)
            return False
        self.count("FramesSent", tally.sent)
        return True

    def send_each(self, messages: Mapping[str, Sequence[str]], spread: Spread) -> Sequence[str]:
        """
        As `send`, to each connection its own messages; the connections that were lost.

        One client's trouble holds up no other. *spread* waits for the store to forget those lost.

        Raises:
            Unavailable: the turn was given up; those lost until then are forgotten all the same.
        """
        tally = Tally()
        try:
            self._drive_each(self.steps(*each, tally) for each in messages.items())
        except Unavailable:
            self._settle(tally, spread)
            raise
        self._settle(tally, spread)
        return tally.lost

    def _settle(self, tally: Tally, spread: Spread) -> None:
        self.count("FramesSent", tally.sent)
        spread(self.connections.remove, tally.lost)

    def cut(self, connection_id: str) -> None:
        """
        Close the connection, then forget it: its client knows before we do.

        Where it cannot be closed it is forgotten all the same: it must not be sent anything
        more. Its client, which hears nothing, asks by and by, and is closed then.
        """
        self._drive(self._cutting(connection_id))
        self.connections.remove(connection_id)

    def end(self, connection_id: str) -> None:
        """As `cut`, for the key it was let in with has ended; its client hears so first."""
        ended = KeyEnded("was revoked or has expired, subscribe with another one", field="key")
        self.sockets.send(connection_id, events.error(ended.body()))
        self.cut(connection_id)

    # What is done for one connection, without doing it.

    def steps(self, connection_id: str, messages: Sequence[str], tally: Tally) -> Steps:
        """`send`, but that who is lost is only cut: it is still to be forgotten."""
        for message in messages:
            outcome = yield from _outcome_of(Send(connection_id, message))
            if outcome is not Outcome.SENT:
                tally.lost.append(connection_id)  # at once, for a turn that is given up below
                yield from self._giving_up(connection_id, outcome)
                return
        tally.sent += len(messages)

    def _giving_up(self, connection_id: str, outcome: Outcome) -> Steps:
        """Exactly this connection, never the one whose message led here."""
        if outcome is Outcome.GONE:
            self.count("ConnectionsGone", 1)
            return
        if outcome is Outcome.REFUSED:
            self.count("SendsRefused", 1)
        elif outcome is Outcome.UNKNOWN:
            self.count("SendsUnknown", 1)
        yield from self._cutting(connection_id)

    def _cutting(self, connection_id: str) -> Steps:
        for attempt in range(limits.SEND_ATTEMPTS_MAX):
            if (yield Close(connection_id)) is Outcome.SENT:
                break
            yield Wait(limits.SEND_BACKOFF_MS << attempt)
        self.count("ConnectionsClosed", 1)

    # Who does it.

    def _drive_each(self, deliveries: Iterable[Steps]) -> None:
        if self.exchange is not None:
            self.exchange(deliveries)
            return
        for delivery in deliveries:
            self._drive(delivery)

    def _drive(self, steps: Steps) -> None:
        outcome: Outcome | None = None
        with suppress(StopIteration):
            while True:
                outcome = self._do(steps.send(outcome))

    def _do(self, step: Request | Wait) -> Outcome | None:
        if isinstance(step, Wait):
            self.sleep(step.ms)
            return None
        return perform(self.sockets, step)


def perform(sockets: Sockets, request: Request) -> Outcome:
    """Do what is asked for."""
    if isinstance(request, Send):
        return sockets.send(request.connection_id, request.message)
    try:
        sockets.close(request.connection_id)
    except Unavailable:
        return Outcome.UNKNOWN
    return Outcome.SENT


def _outcome_of(request: Send) -> Generator[Request | Wait, Outcome | None, Outcome]:
    """What became of a message: BUSY once its attempts are used up."""
    for attempt in range(limits.SEND_ATTEMPTS_MAX):
        if attempt:
            yield Wait(limits.SEND_BACKOFF_MS << attempt - 1)
        outcome = yield request
        if outcome is not None and outcome is not Outcome.BUSY:
            return outcome
    return Outcome.BUSY
