"""The relay of a chained feed: its progress, its upstream, and the state requested by the operator.

Each chained feed has one relay document. A run of the relay stores the pages that it copied and the
changed document in one write. If an operator or another run has changed the document in the
meantime, the document has another version. The run then writes nothing and reads the document
again. A lock in the document ensures that only one run at a time copies a feed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import has_passed, is_ahead
from tidings.core.errors import BrokenRelay
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.records import Kind, Layout, Write, expected_version, tuple_codec
from tidings.core.replication.source import Role
from tidings.core.settings.profiles import Lost, merge_lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.effects import Clock
    from tidings.core.model.cursors import Place
    from tidings.core.model.pages import Page
    from tidings.core.records import Fields, RecordStore
    from tidings.core.replication.wire import UpstreamStatus
    from tidings.core.settings.profiles import Lost


RELAYS = Kind("relay", is_due=True, is_together=True)


class RelayStore(ABC):
    """A store of relay documents. Only this port appends to the log of a chained feed."""

    def __init__(self, records: RecordStore) -> None:
        self.records = records

    def relay(self, feed: str) -> Relay:
        """Return the relay of *feed*, strongly consistent; its version is 0 if it is not stored.

        Raises:
            BrokenRelay: the stored document cannot be read.
        """
        found = self.records.get(feed, RELAYS)
        return _decode(feed, found.fields) if found else Relay(feed)

    def write(self, before: Relay, after: Relay) -> bool:
        """Replace *before* with *after* and return True if the stored version is that of *before*.

        The stored version becomes `before.version + 1`, even if *after* has another version.
        """
        return self.records.write(after.feed, [relay_write(before, after)], mark=False)

    @abstractmethod
    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        """Do as `write`, append *pages* and set the head to `after.checkpoint`, in one transaction.

        Also add to the feed's counter of operations the difference between the counts of *after*
        and *before*. If a page with the number of one of *pages* exists, write nothing and return
        False.
        """


UPSTREAMS = Kind("upstream")


class RelayPasswords:
    """The passwords that relays send to their upstreams.

    They are stored unhashed, because the relays need them. No route or command returns them.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = records

    def password(self, feed: str) -> str:
        """Return the password for the upstream of *feed*; "" if it is not set."""
        found = self._records.get(feed, UPSTREAMS)
        return found.fields["password"] if found else ""

    def keep(self, feed: str, password: str) -> None:
        """Store *password*. If *password* is "", no password is sent from then on."""
        self._records.write(feed, [Write(UPSTREAMS, "", {"password": password})])


RELAY = "relay"  # the wake-up name of the function that copies chained feeds


class Wanted(Enum):
    """The state requested by the operator."""

    RUN = "running"
    PAUSE = "paused"  # the relay reads nothing, but keeps its leader lease and its position
    SHUTDOWN = "shutdown"  # the relay reads nothing, and has no leader lease, until it is started
    PROMOTED = "promoted"  # the relay copies nothing any more, and producers post to this feed


class RelayStatus(Enum):
    """The state that the last run found."""

    NEW = "new"  # no page was read yet
    COPYING = "copying"  # the state is copied, because the log does not go back far enough
    RUNNING = "running"
    RETRYING = "retrying"  # the upstream does not answer
    FELL_OFF = "fell-off"  # the upstream's log does not go back far enough; an operator must act
    OTHER_LOG = "other-log"  # the upstream's log is not the log that was copied so far
    CYCLE = "cycle"  # the upstream is itself a copy of this feed, directly or indirectly
    REFUSED = "refused"  # the upstream does not allow this feed to read


@dataclass(frozen=True, slots=True)
class Copy:
    """An unfinished copy of the upstream's state.

    The rows of the buckets below *bucket* are copied, and the rows of *bucket* up to the key
    *after*. When the copy is complete, the log continues after page *page* (-1: not known yet),
    which was committed at *seconds* (0: unknown). If *empty* is True, no row is copied and all
    local rows are deleted.
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
        """Return True if all rows are copied."""
        return self.bucket >= limits.BUCKETS


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters since the feed was chained. *repeated* counts pages that were received again."""

    pages: int = 0
    operations: int = 0
    filtered: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class Relay:
    """The document of a chained feed.

    *checkpoint* is the last local page, or 0 before the first page. This page was committed at
    *seconds* (0: unknown). *via* are the ids of the relays from the master to this feed, and *id*
    is the id of this relay. *low_watermark* is the first page that was ever stored here.

    The run *owner* holds the lock of the relay until *lease_until_ms*. After *failures* in a row
    the next attempt is due at *attempt_ms*. *upstream* is the address that was read last. If
    *upstream_ended* is True, the log of the upstream ends with page *upstream_head*, and another
    feed continues the log. *term* is the term of the leader lease if this feed is a leader. *why*
    is the operator's reason for the last reset or promotion. The state was last compared with the
    upstream's state at the time *compared_ms*, when both were at page *compared_page*. *mended* is
    the number of buckets that differed so far. The next comparison adds up the stored rows of
    bucket *counted*. *lost* are the pages that the upstreams lost (`settings.profiles`).
    """

    feed: str
    version: int = 0
    id: str = ""
    wanted: Wanted = Wanted.RUN
    condition: RelayStatus = RelayStatus.NEW
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
        """Return the end of the last local page, for the next request to the upstream."""
        return Place(self.checkpoint, PAGE_END, self.seconds)

    @property
    def is_blocked(self) -> bool:
        """Return True if the relay stays stopped until an operator acts."""
        return self.condition in (RelayStatus.FELL_OFF, RelayStatus.OTHER_LOG, RelayStatus.CYCLE)

    @property
    def is_complete(self) -> bool:
        """Return True if the upstream's log has ended and all its pages were copied."""
        return self.upstream_ended and self.copy is None and self.checkpoint >= self.upstream_head

    @property
    def status(self) -> str:
        """Return `condition` if the operator wants the relay to run, otherwise `wanted`."""
        return self.condition.value if self.wanted is Wanted.RUN else self.wanted.value

    def is_held(self, now_ms: int) -> bool:
        return self.owner != "" and is_ahead(self.lease_until_ms, now_ms, limits.RELAY_LEASE_MS)


_RELAY = Layout(
    Relay,
    codecs={
        "copy": (asdict, lambda found: Copy(**found)),
        "counts": (asdict, lambda found: Counts(**found)),
        "lost": tuple_codec((list, tuple)),
    },
    feed="feed",
    without=("version",),
)


def relay_write(before: Relay, after: Relay) -> Write:
    """Return the write of *after* over *before*, as the next version.

    The fields are JSON in one field, as stages have stored them since their first release.
    """
    fields = {name: each for name, each in _RELAY.encode(after).items() if each is not None}
    document = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    stored = {"document": document, "version": before.version + 1}
    return Write(RELAYS, "", stored, expected_version(before.version))


def _decode(feed: str, found: Fields) -> Relay:
    """Decode a relay.

    Raises:
        BrokenRelay: *found* are not the fields of `relay_write`.
    """
    try:
        fields = {**json.loads(found["document"])}
        relay = replace(_RELAY.decode(fields, feed), version=found["version"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BrokenRelay(feed, str(error)) from None
    # Other values would compare wrongly.
    counted = relay.version, relay.checkpoint, relay.seconds, relay.low_watermark
    if not all(type(each) is int and each >= 0 for each in counted) or not relay.version:
        raise BrokenRelay(feed, "a position is not a whole number")
    return relay


def record_failure(relay: Relay, condition: RelayStatus, error: str, *, now_ms: int) -> Relay:
    """Return *relay* after a failed attempt. The delay before the next attempt grows."""
    failures = relay.failures + 1
    return replace(
        relay,
        condition=condition,
        failures=failures,
        attempt_ms=now_ms + backoff_ms(failures),
        error=error[: limits.ERROR_CHARS_MAX],
    )


def backoff_ms(failures: int) -> int:
    """Return the delay in ms after *failures* in a row, which doubles up to a maximum."""
    doubled = limits.RELAY_BACKOFF_MS << min(failures - 1, 20)
    return min(doubled, limits.RELAY_BACKOFF_MS_MAX)


def clear_failure(relay: Relay) -> Relay:
    return replace(relay, failures=0, attempt_ms=0, error="")


def restart(relay: Relay) -> Relay:
    """Return *relay* started by an operator, without its error and at the same position."""
    condition = RelayStatus.COPYING if relay.copy else RelayStatus.RUNNING
    begun = relay.copy or relay.checkpoint
    return replace(clear_failure(relay), condition=condition if begun else RelayStatus.NEW)


@dataclass(frozen=True, slots=True)
class _ObservedStatus:
    """The fields of `Relay` that the upstream's last reply determines."""

    upstream_read_ms: int
    master_read_ms: int
    upstream_head: int
    upstream_ended: bool
    master: str
    via: tuple[str, ...]
    lost: tuple[Lost, ...]


@dataclass(slots=True)
class RelayLock:
    """A lock on a relay, stored in the relay document.

    *relay* is the document as *owner* last read or wrote it. Call `mark_stale` if the stored
    document may have changed, and `refresh` before each step. *repeated* is the number of pages
    that arrived again since the last write. The next write stores this number and the upstream's
    status.
    """

    store: RelayStore
    clock: Clock
    owner: str
    relay: Relay
    repeated: int = field(default=0, init=False)
    _stale: bool = False
    _saved_ms: int = 0
    _seen: _ObservedStatus | None = None

    def refresh(self) -> bool:
        """Read the document if it may have changed; return True if *owner* still has the lock."""
        if self._stale:
            self.relay, self._stale = self.store.relay(self.relay.feed), False
        return self.relay.owner == self.owner

    def mark_stale(self) -> None:
        """Let the next `refresh` read the document, because an operator may have changed it."""
        self._stale = True

    def save(self, after: Relay) -> bool:
        """Store *after* as `relay` and renew the lock.

        If another process has changed the document, write nothing and return False.
        """
        held, self._stale = self._renew_lease(after), True  # `_stale` stays True if the write fails
        return self._remember(held) if self.store.write(self.relay, held) else False

    def append(self, after: Relay, pages: Sequence[Page]) -> bool:
        """Do as `save`, append *pages* to the log and set its head to the checkpoint."""
        held, self._stale = self._renew_lease(after), True
        return self._remember(held) if self.store.append(self.relay, held, pages) else False

    def renew(self) -> None:
        """Renew the lock and store the upstream's status, at most every `limits.RELAY_SAVE_MS`."""
        if has_passed(self._saved_ms, self.clock(), limits.RELAY_SAVE_MS):
            self.save(self.relay)

    def release(self) -> None:
        free = replace(self._with_progress(self.relay), owner="", lease_until_ms=0)
        self.store.write(self.relay, free)

    def observe(self, status: UpstreamStatus, url: str) -> None:
        """Record *status* of the feed at *url*, which is the master if *status* names no master."""
        now, known = self.clock(), self._seen or self.relay
        read_ms = min(now, status.master_read_ms) if status.master else now
        self._seen = _ObservedStatus(
            upstream_read_ms=now,
            master_read_ms=max(known.master_read_ms, read_ms),
            upstream_head=status.head,
            upstream_ended=status.ended,
            master=status.master or url,
            via=(*status.via, self.relay.id),
            lost=merge_lost({*self.relay.lost, *status.lost}),
        )

    @property
    def has_unsaved_changes(self) -> bool:
        """Return True if the upstream's status has changes that must be stored at once."""
        seen, known = self._seen, self.relay
        return seen is not None and (seen.via, seen.upstream_ended, seen.lost) != (
            known.via,
            known.upstream_ended,
            known.lost,
        )

    def _renew_lease(self, relay: Relay) -> Relay:
        until_ms = self.clock() + limits.RELAY_LEASE_MS
        return replace(self._with_progress(relay), owner=self.owner, lease_until_ms=until_ms)

    def _with_progress(self, relay: Relay) -> Relay:
        counts = replace(relay.counts, repeated=relay.counts.repeated + self.repeated)
        seen = asdict(self._seen) if self._seen else {}
        return replace(relay, counts=counts, **seen)

    def _remember(self, held: Relay) -> bool:
        self.relay = replace(held, version=self.relay.version + 1)
        self._stale, self._saved_ms = False, self.clock()
        self.repeated, self._seen = 0, None
        return True
