"""Report the status of a feed to operators and their monitors.

The report begins with ten fields of the status of dailymotion/oplog, in the same order and with the
same meanings. The other fields of oplog (command line, environment, memory) are private, so they
are not reported.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import STORAGE_DAMAGED
from tidings.core.followers.follower import ARCHIVE, STATE
from tidings.core.log.reader import Gap
from tidings.core.model.feeds import public_name
from tidings.core.model.timestamps import from_ms
from tidings.core.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.counters import Counters, LogCounter, Totals
    from tidings.core.errors import StorageFailed
    from tidings.core.followers.follower import BuiltInFollowers
    from tidings.core.followers.leases import FollowerStore, Lease
    from tidings.core.log.reader import Reader
    from tidings.core.model.feeds import FeedNames
    from tidings.core.model.pages import Page
    from tidings.core.replication.copies import CopiedLosses

OK, LAGGING, STALLED, UNAVAILABLE = "OK", "LAGGING", "STALLED", "UNAVAILABLE"
LOCAL = "local"  # the source of a feed that producers post to
Report = dict[str, object]

COUNTERS = (
    "events_received",
    "events_sent",
    "events_ingested",
    "events_error",
    "events_discarded",
    "queue_size",
    "queue_max_size",
    "clients",
    "connections",
)


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """The progress of a follower. *lag_ms* is the age of the oldest page that it has not handled.

    *missing* is the lost page that the follower cannot pass, or 0.
    """

    name: str
    checkpoint: int
    lag_pages: int
    lag_ms: int
    leased: bool
    operations: int
    missing: int = 0

    @property
    def is_late(self) -> bool:
        """Return True if the lag is too high.

        The archive may lag for longer than other followers, because it waits for many pages on
        purpose (ADR 51).
        """
        bound_ms = limits.ARCHIVE_LAG_S_MAX * 1000 if self.name == ARCHIVE else limits.LAG_MS_MAX
        return self.lag_ms > bound_ms

    def report(self) -> Report:
        report = asdict(self)
        del report["operations"]  # the counters of the feed report the number of operations
        del report["missing"]  # the problems of the feed report a missing page
        return report

    def problem(self, feed: str, head: int) -> str:
        """Return a sentence that says why the follower is late, or "" if it is not late."""
        if self.missing:
            return f"{feed}: page {self.missing} is missing (head {head}); run `tidings verify`"
        if self.is_late:
            at = f"{feed}: the follower {self.name} is at page {self.checkpoint} (head {head})"
            return f"{at}, {self.lag_ms // 1000} s late; see its error log"
        return ""


@dataclass(slots=True, kw_only=True)
class Reporter:
    """The status service. Reports are cached for `limits.STATUS_AGE_MS`.

    A report names only the configured feeds, because it needs no credential.
    """

    store: FollowerStore
    counters: Counters
    reader: Reader
    feed_names: FeedNames
    followers: BuiltInFollowers
    losses: CopiedLosses
    _recent: Newest[str, tuple[int, Report]] = field(default_factory=Newest)

    def report(self, feed: str) -> Report:
        """Return the report on *feed*.

        Raises:
            InvalidFeed, UnknownFeed: this deployment does not have the feed.
            Unavailable: a store did not answer; see `unavailable`.
        """
        name, now = self.feed_names.key(feed), self.reader.clock()
        made_ms, recent = self._recent.get(name, (0, None))
        if recent is None or not 0 <= now - made_ms < limits.STATUS_AGE_MS:
            recent = self._look(name, now)
            self._recent[name] = (now, recent)
        return recent

    def unavailable(self, feed: str) -> Report:
        """Return the report that is sent for *feed* if one of its stores does not answer."""
        counters = dict.fromkeys(COUNTERS)
        time = from_ms(self.reader.clock())
        return {"status": UNAVAILABLE, **counters, "feed": feed, "time": time}

    def _look(self, feed: str, now_ms: int) -> Report:
        """Build the report. Read the followers before the head, so that no lag is negative."""
        leases = self.store.leases(feed)
        totals = self.counters.totals(feed, now_ms=now_ms)
        counter = self.reader.log.log_counter(feed)
        followers = self._followers(feed, leases, counter.page, now_ms)
        # If the reads do not reach the frontier, it is the last place that was read.
        hint = max(each.checkpoint for each in followers)
        *_, (frontier, exact) = islice(self.reader.walk(feed, hint), limits.STATUS_READS_MAX)
        relay, copies = self.losses.relay(feed), self.losses.copies
        problems = dict.fromkeys(
            each.problem(public_name(feed), counter.page) for each in followers
        )
        problems.pop("", None)
        return {
            "status": _status(followers),
            **_counters(counter, totals, followers),
            "feed": public_name(feed),
            "feeds": sorted(self.feed_names.configured)[: limits.FEEDS_NAMED],
            "head": counter.page,
            "frontier": {"cursor": frontier.encode(), "page": frontier.page, "exact": exact},
            "floor": self.reader.log.floor(feed),
            "followers": [each.report() for each in followers],
            "time": from_ms(now_ms),
            "source": copies[feed].url if relay else LOCAL,
            "generation": 1 + len(self.losses.ranges(feed)),
            **({"relay": relay.status} if relay else {}),
            **({"problems": list(problems)} if problems else {}),
        }

    def _followers(
        self, feed: str, leases: Sequence[Lease], head: int, now_ms: int
    ) -> list[FollowerStatus]:
        """Return the progress of the followers, including those that have not run yet."""
        known = {lease.name: lease for lease in leases}
        handled = {lease.name: lease.checkpoint for lease in leases}
        names = self.followers.checkpoints(feed, handled)
        return [
            self._follower_status(feed, name, known.get(name), head, now_ms)
            for name in sorted(names)
        ]

    def _follower_status(
        self, feed: str, name: str, lease: Lease | None, head: int, now_ms: int
    ) -> FollowerStatus:
        checkpoint = lease.checkpoint if lease else 0
        waiting = self.reader.log.read(feed, checkpoint, 1) if checkpoint < head else []
        return FollowerStatus(
            name,
            checkpoint,
            lag_pages=head - checkpoint,
            lag_ms=max(0, now_ms - waiting[0].at_ms) if waiting else 0,
            leased=lease is not None and lease.is_held(now_ms),
            operations=lease.operations if lease else 0,
            missing=self._missing(feed, name, checkpoint + 1, waiting),
        )

    def _missing(self, feed: str, name: str, number: int, waiting: Sequence[Page]) -> int:
        """Return *number*, the next page of the follower *name*, if the page is lost; else 0.

        The archive skips lost pages, as push does in a chained feed, so return 0 for these
        followers. The follower `state` of a chained feed may be below the floor while the state is
        copied; this is no loss.
        """
        passes = name == ARCHIVE or (self.losses.is_copy(feed) and name != STATE)
        if passes or not waiting or waiting[0].first <= number:
            return 0
        gap = self.reader.gap(feed, number, waiting[0])
        lost = gap is Gap.LOST or (gap is Gap.TRIMMED and not self.losses.is_copy(feed))
        return number if lost else 0


def with_problem(report: Report, problem: StorageFailed) -> Report:
    """Return *report* with a problem of the storage."""
    is_damaged = problem.code == STORAGE_DAMAGED and report["status"] != UNAVAILABLE
    others = report.get("problems", [])
    assert isinstance(others, list)
    status = STALLED if is_damaged else UNAVAILABLE
    return report | {"status": status, "problems": [str(problem), *others]}


def _status(followers: Sequence[FollowerStatus]) -> str:
    if any(each.missing for each in followers):
        return STALLED
    return LAGGING if any(each.is_late for each in followers) else OK


def _counters(counter: LogCounter, totals: Totals, followers: Sequence[FollowerStatus]) -> Report:
    """Return the counters.

    The fields of queues and discarded events are 0, because the service has no queue.
    """
    ingested = next(each.operations for each in followers if each.name == STATE)
    values = {
        "events_received": counter.operations,
        "events_sent": totals.sent,
        "events_ingested": ingested,
        "events_error": totals.refused,
        "clients": totals.clients,
        "connections": totals.connections,
    }
    return {name: values.get(name, 0) for name in COUNTERS}
