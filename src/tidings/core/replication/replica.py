"""
A relay: how far a chained feed has come, whom it reads, and what its operator wants of it.

One document a feed, stored with the pages it tells of in one write. Its *version* guards every
write: a runner whose document was changed by an operator or by another runner has written
nothing, and looks again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tidings.core import limits
from tidings.core.deadlines import is_ahead
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.replication.source import Role
from tidings.core.settings.profiles import Lost

RELAY = "relay"  # the bell of the function that copies chained feeds


class Wanted(Enum):
    """What the operator wants."""

    RUN = "running"
    PAUSE = "paused"  # keeps its seat and its place, reads nothing
    SHUTDOWN = "shutdown"  # gives up its seat as well, until it is started
    PROMOTED = "promoted"  # copies nothing any more: producers post here


class Condition(Enum):
    """How it goes, as far as the runner knows."""

    NEW = "new"  # nothing was read yet
    COPYING = "copying"  # the upstream's state, because its log does not reach back
    RUNNING = "running"
    RETRYING = "retrying"  # the upstream does not answer
    FELL_OFF = "fell-off"  # the upstream's log does not reach back, and the policy is to wait
    OTHER_LOG = "other-log"  # the upstream is not the log that was copied so far
    CYCLE = "cycle"  # the upstream is fed by this feed
    REFUSED = "refused"  # the upstream does not let us read


@dataclass(frozen=True, slots=True)
class Copy:
    """
    A copy of the upstream's state under way: rows of buckets below *bucket* are here, and those
    of *bucket* up to the key *after*.

    The log goes on behind page *page* (-1: not known yet), committed at *seconds* (0: unknown).
    *empty*: nothing is copied, and all that is here is forgotten.
    """

    page: int = -1
    seconds: int = 0
    bucket: int = 0
    empty: bool = False
    after: str = ""

    @property
    def begun(self) -> bool:
        return self.bucket > 0 or self.after != ""

    @property
    def copied(self) -> bool:
        """Whether nothing is left but to go on in the log."""
        return self.bucket >= limits.BUCKETS


@dataclass(frozen=True, slots=True)
class Counts:
    """Since the feed was chained; *filtered* entries were left out, *repeated* pages came again."""

    pages: int = 0
    operations: int = 0
    filtered: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class Relay:
    """
    *checkpoint* is the last page that is here, 0 before the first, committed at *seconds* (0:
    unknown). *id* names the relay in `via` of those who read it. *low_watermark* is the first
    page that ever was here.

    *owner* holds it until *lease_until_ms*. After *failures* in a row the next attempt is due at
    *attempt_ms*. *upstream* is the address that was read last, *upstream_ended* that its log goes
    on elsewhere behind page *upstream_head*, *term* the fence of the seat that a leader holds.
    *why* is what its operator said with the last reset or promotion. At *compared_ms* its state was
    last compared with the upstream's, at page *compared_page*; *mended* buckets ever differed, and
    *counted* is the bucket whose rows are counted next. *lost* are the pages that
    its upstreams lost (`settings.profiles`).
    """

    feed: str
    version: int = 0
    id: str = ""
    wanted: Wanted = Wanted.RUN
    condition: Condition = Condition.NEW
    owner: str = ""
    lease_until_ms: int = 0
    checkpoint: int = 0
    seconds: int = 0
    low_watermark: int = 0
    copy: Copy | None = None
    via: tuple[str, ...] = ()
    upstream: str = ""
    master: str = ""
    role: Role = Role.LEADER
    term: int = 0
    failures: int = 0
    attempt_ms: int = 0
    error: str = ""
    counts: Counts = Counts()
    upstream_read_ms: int = 0
    master_read_ms: int = 0
    upstream_head: int = 0
    upstream_ended: bool = False
    page_at_ms: int = 0
    transitions: int = 0
    changed_ms: int = 0
    why: str = ""
    compared_ms: int = 0
    compared_page: int = 0
    mended: int = 0
    counted: int = 0
    lost: tuple[Lost, ...] = ()

    @property
    def place(self) -> Place:
        """Behind the last page that is here, as the upstream is asked."""
        return Place(self.checkpoint, PAGE_END, self.seconds)

    @property
    def stands(self) -> bool:
        """Whether only an operator gets it going again."""
        return self.condition in (Condition.FELL_OFF, Condition.OTHER_LOG, Condition.CYCLE)

    @property
    def is_whole(self) -> bool:
        """Whether everything is here that the upstream will ever have."""
        return self.upstream_ended and self.copy is None and self.checkpoint >= self.upstream_head

    @property
    def status(self) -> str:
        """In one word: what its operator wanted, else how it goes."""
        return self.condition.value if self.wanted is Wanted.RUN else self.wanted.value

    def held(self, now_ms: int) -> bool:
        return self.owner != "" and is_ahead(self.lease_until_ms, now_ms, limits.RELAY_LEASE_MS)


def failed(relay: Relay, condition: Condition, error: str, *, now_ms: int) -> Relay:
    """*relay* after an attempt that failed; delays grow up to a bound, and never end."""
    failures = relay.failures + 1
    return replace(
        relay,
        condition=condition,
        failures=failures,
        attempt_ms=now_ms + backoff_ms(failures),
        error=error[: limits.ERROR_CHARS_MAX],
    )


def backoff_ms(failures: int) -> int:
    """How long to wait after so many failures in a row."""
    doubled = limits.RELAY_BACKOFF_MS << min(failures - 1, 20)
    return min(doubled, limits.RELAY_BACKOFF_MS_MAX)


def succeeded(relay: Relay) -> Relay:
    return replace(relay, failures=0, attempt_ms=0, error="")


def restarted(relay: Relay) -> Relay:
    """*relay* as its operator starts it: what stopped it is forgotten, where it stands is not."""
    condition = Condition.COPYING if relay.copy else Condition.RUNNING
    begun = relay.copy or relay.checkpoint
    return replace(succeeded(relay), condition=condition if begun else Condition.NEW)
