"""
The effects the core needs, each as small as it can be.

`memory` implements all of them in a process; `tidings.aws` on DynamoDB, API Gateway and Lambda.
Every adapter passes the contract in `tests/contract/` of its port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .claims import Claim
    from .connections import Change, Connection, Outcome
    from .departures import Departures
    from .leases import Lease, Observation
    from .outboxes import Letter
    from .pages import Page, Pages
    from .profiles import Profile
    from .registrations import Listener, Registered
    from .roster import Portion, Round
    from .state import Lines, Row
    from .tallies import Taken, Totals
    from .verifying import Difference


class Clock(Protocol):
    """Milliseconds since 1970. Only ever compared within `limits.CLOCK_SKEW_MS_MAX`."""

    def __call__(self) -> int: ...


class Sleep(Protocol):
    """Wait for some milliseconds."""

    def __call__(self, ms: int) -> None: ...


class NewId(Protocol):
    """A fresh unique id of 32 lower-case hex digits."""

    def __call__(self) -> str: ...


class LogStore(Protocol):
    """The pages of each feed and the counter that numbers them."""

    def take(self, feed: str, operations: int = 0) -> int:
        """
        The next page number; each caller gets a number of its own, starting with 1.

        *operations* of the request that asks are counted in the same write: see `Intake`.
        """
        ...

    def put(self, feed: str, page: Page) -> str:
        """
        Write *page* unless its number is taken; the append id found there afterwards.

        Our own append id means that the page is written, by this call or an earlier one.
        """
        ...

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        """
        Pages numbered above *after* in ascending order, at most *limit* or some 1 MB.

        `more` of the answer says that one of the two cut it short: there may be pages behind.

        Strongly consistent: a page whose `put` returned before the call is seen. Numbers may
        be missing. An empty list means that no page above *after* exists. Append id and expiry
        are left out ("" and 0), because every byte and attribute read costs each reader.

        *eventual*: for half the price, eventually consistent. What is there is right, because
        pages never change; what is missing, in between or at the end, may have been written.
        """
        ...

    def head(self, feed: str) -> int:
        """The last number taken; 0 before the first."""
        ...


class Intake(Protocol):
    """What the counter of a feed knows of producers."""

    def taken(self, feed: str) -> Taken:
        """The last number taken, and the operations that numbers were taken for."""
        ...


class TrimStore(Protocol):
    """How far the log of a feed has been given up."""

    def floor(self, feed: str) -> int:
        """First page still in the log; 1 for a new feed. Only ever grows."""
        ...

    def raise_floor(self, feed: str, page: int) -> None:
        """Set the floor to *page* unless it is there or above already."""
        ...


class StateStore(Protocol):
    """The latest operation of each object."""

    def write(self, feed: str, rows: Sequence[Row]) -> int:
        """
        Put *rows*, one per object, but for those at whose place a row at or behind them stands.

        How many were left out because another row stands. A request may land at any time, long
        after its caller died: it puts nothing back.

        Raises:
            Unavailable: of some rows nobody knows; the call may be repeated.
        """
        ...

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        """Rows of *bucket* in key order above key *after*, some 1 MB at most; [] at the end."""
        ...

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        """As `read`, the lines alone: half the work, and the end is known without another."""
        ...

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        """The rows of those objects that have one, in any order. Strongly consistent."""
        ...


class Repairs(Protocol):
    """The way to put right what a verification found wrong in the state."""

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        """
        Put each row that is wanted (None: delete the row) where just what was found still stands.

        For each whether it stands as wanted afterwards, by this call or another one.
        """
        ...


class Spill(Protocol):
    """The operations of a log as rows, by bucket: more of them than memory may hold."""

    def add(self, rows: Sequence[Row]) -> None:
        """Add *rows* of any buckets behind those that are there."""
        ...

    def rows(self, bucket: int) -> Iterator[Row]:
        """Those of *bucket* in the order in which they were added, one by one."""
        ...


class DepartureStore(Protocol):
    """Which parents the operations of a page took away from their objects."""

    def write(self, feed: str, departures: Sequence[Departures]) -> None:
        """
        Put *departures*, one a page, but for pages that have some: the first ones stand.

        Raises:
            Unavailable: of some pages nobody knows; the call may be repeated.
        """
        ...

    def read(self, feed: str, first: int, last: int) -> list[Departures]:
        """
        Those of the pages *first* to *last* that are there, ascending. Strongly consistent.

        The expiry is left out (0).
        """
        ...


class FollowerStore(Protocol):
    """Checkpoint and lease of every named reader of a feed."""

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        """
        Take the lease if nobody holds it, or if it still is what *over* has seen.

        The fence grows by one. The lease that stands afterwards: ours, if *owner* is its owner.
        """
        ...

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        """
        Leave a mark for the holder, and *look*, if any, for others who find the lease held.

        The look of before; None when nobody holds the lease any more: nothing is left.
        """
        ...

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        """
        Move the checkpoint, store `lease.operations` with it and renew the lease.

        Raises:
            LeaseLost: the fence moved on. Nothing was written.
        """
        ...

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        """
        Store checkpoint and operations and let go, unless a mark was left since `lease.bell`.

        True when let go or lost already; False when a mark was left: nothing was written and
        the lease is still held. *force* lets go in spite of a mark.
        """
        ...


class Checkpoints(Protocol):
    """Where the followers of a feed stand, for everybody else."""

    def checkpoints(self, feed: str) -> dict[str, int]:
        """The last page each follower of *feed* has handled, by name; {} for a new feed."""
        ...

    def standings(self, feed: str) -> Sequence[Lease]:
        """The lease of each follower as it is stored, held or not, by name."""
        ...


class Tallies(Protocol):
    """What is counted for `/status` beside the log; good to a few seconds, never in the way."""

    def refuse(self, feed: str) -> None:
        """Count a request whose operations were refused."""
        ...

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        """Add to the streams that were opened and the events that were sent on them."""
        ...

    def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
        """*place* has so many clients connected; forgotten unless said again by *until_ms*."""
        ...

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        """Everything counted so far, and the clients of all places now."""
        ...


class ClaimStore(Protocol):
    """What became of a request that carried an Idempotency-Key."""

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        """The live claim on *key*."""
        ...

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        """Write *claim* unless a live one exists; the claim that stands afterwards."""
        ...

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        """Point *claim* to *page* if it still points where it did; the claim that stands."""
        ...


class Profiles(Protocol):
    """What the owner of each feed has set."""

    def profile(self, feed: str) -> Profile:
        """Strongly consistent; the defaults when nothing was ever set."""
        ...

    def save(self, feed: str, profile: Profile) -> bool:
        """
        Replace all of it if `profile.version` is still there; False when it is not.

        What is stored has `profile.version + 1`. Two who change at once cannot undo each other.
        """
        ...


class ConnectionStore(Protocol):
    """The WebSocket connections, each one item."""

    def open(self, connection: Connection) -> None:
        """Write a new connection."""
        ...

    def get(self, connection_id: str) -> Connection | None:
        """Strongly consistent."""
        ...

    def update(self, old: Connection, new: Connection) -> bool:
        """
        Replace *old* by *new* if `old.version` is still there; False when it is not.

        What is stored has `old.version + 1`, whatever *new* says.
        """
        ...

    def remove(self, connection_id: str) -> None:
        """Forget the connection and everything filed under it."""
        ...


class Roster(Protocol):
    """Every connection, for the sweep, and how far it is with them."""

    def portion(self, place: str, limit: int) -> Portion:
        """
        Connections of all feeds behind *place*, "" for the first, in an order of the store's own.

        At most *limit* items are read, connections or what is stored beside them: so a portion
        may name nobody, and others follow all the same. Going on until a portion has no place
        names everybody who is connected all the while, once. May be some seconds old.
        """
        ...

    def round(self) -> Round:
        """What was last kept; `Round()` before. May be some seconds old."""
        ...

    def keep(self, round_: Round) -> None:
        """Store how far the round is."""
        ...


class Inbox(Protocol):
    """Changes of subscriptions on their way to the push follower, the only one to apply them."""

    def post(self, feed: str, change: Change) -> None:
        """Leave *change*; a later one of the same connection replaces it."""
        ...

    def list(self, feed: str) -> Sequence[Change]:
        """All changes of *feed*. Strongly consistent."""
        ...

    def done(self, feed: str, change: Change) -> None:
        """Remove *change* unless it was replaced since."""
        ...


class Registry(Protocol):
    """Which connection listens for a resource of a feed under an instance's name: the last one."""

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        """File the connection for each of its resources; the connections it took one from."""
        ...

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        """Take out what is still filed for this connection."""
        ...

    def registered(self, feed: str) -> Sequence[Registered]:
        """All entries of *feed*, by instance and resource. Strongly consistent."""
        ...


class Outbox(Protocol):
    """What owners of other tables left for each feed."""

    def pending(self, feed: str) -> Sequence[Letter]:
        """The oldest letters, some 1 MB at most; none where none is left. Strongly consistent."""
        ...

    def done(self, feed: str, letter: Letter) -> None:
        """Remove it: its page is in the log."""
        ...

    def put_aside(self, feed: str, letter: Letter, reason: str) -> None:
        """Remove it and keep it elsewhere, with the reason why it never can be appended."""
        ...


class Sockets(Protocol):
    """The way to a connected client."""

    def send(self, connection_id: str, frame: str) -> Outcome:
        """
        Send one text message, at most `limits.FRAME_BYTES_MAX` or one operation.

        Whatever becomes of it is an outcome: one client's trouble is never an error to others.
        """
        ...

    def close(self, connection_id: str) -> None:
        """
        Cut the connection; nothing happens when it is gone, or was never there.

        Raises:
            Unavailable: nobody knows whether it was cut.
        """
        ...


class Spread(Protocol):
    """Run a task for each item, side by side where the edge can; returns when all are done."""

    def __call__(self, task: Callable[[str], None], items: Sequence[str]) -> None: ...


class Count(Protocol):
    """Add to a metric of `tidings.aws.metrics`."""

    def __call__(self, metric: str, value: int) -> None: ...


class Bells(Protocol):
    """The way to wake a function without waiting for it."""

    def ring(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        """
        Run the follower soon; may be lost, repeated or late.

        With an *observation* it goes on looking at a lease, and takes it over in the end.
        """
        ...

    def replay(self, connection_id: str) -> None:
        """Run the catch-up of a connection soon; may be lost, repeated or late."""
        ...
