"""Broken protocols: the simulation is worth its time only if it notices each of them.

Every mutation is the real code with one rule taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from tests.fakes import MemoryConnections, MemoryFollowers
from tests.model.broken_correctors import LeapsOverHoles, LooksBefore, RowsFirst
from tests.simulation import (
    broken_leases,
    broken_relays,
    broken_retention,
    broken_server,
    broken_websocket,
)
from tests.simulation.broken_catchup import (
    FloorOfSecond,
    ForgottenTombstones,
    HastyArchiver,
    LateCheckpoint,
    LateResumption,
    LeapingReader,
    LeapingReplay,
    NextBucket,
    StraightToTheLog,
)
from tests.simulation.broken_consumers import (
    Drops,
    ForgetfulView,
    HastyRetention,
    SilentRefilter,
    by_the_highest,
    deaf_to_fences,
    in_bulk_again,
)
from tests.simulation.broken_leases import (
    ByTheClock,
    HastyProjector,
    MarklessFollowers,
    Unfenced,
    UnfencedFollowers,
)
from tests.simulation.broken_removed_parents import (
    CredulousReader,
    EagerReader,
    HastyLeaves,
    LateProjector,
    SilentProjector,
    SkipsRestOfPage,
    StickyCopies,
)
from tests.simulation.broken_sums import ForgetfulProjector, GuessingProjector
from tests.simulation.broken_websocket import (
    CarelessPusher,
    CarelessRegistrar,
    ClingingPusher,
    DeafPusher,
    DroppingBuffer,
    GraspingPusher,
    LateRegistrar,
    LeapingPusher,
    asked_early,
    asks_before_it_reads,
    unnoted,
)
from tests.simulation.parts import RETENTION_MS, Parts, limited
from tests.simulation.process import Process
from tests.simulation.run import Failed, Plan, run
from tests.simulation.stores import ReportingLog
from tidings.core.followers.leases import Lease
from tidings.core.log.append import Appender, Precondition
from tidings.core.log.reader import Reader, Run
from tidings.core.model.pages import Page, Pages, encode
from tidings.core.websocket.connections import Change, Connection, Subscription
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.session import State


class UnconditionalFiller(ReportingLog):
    """(a) A filler is put whether or not the number is taken."""

    def put(self, feed: str, page: Page) -> str:
        if not page.body:
            self._feeds[feed].pages.pop(page.number, None)
            numbers = self._feeds[feed].numbers
            self._feeds[feed].numbers = [number for number in numbers if number != page.number]
        return super().put(feed, page)


class HoleReader(Reader):
    """(b) Reads on after a hole."""

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        pages = self.log.read(feed, after, limit)
        return Run(pages) if pages else super().read(feed, after, limit)


class CredulousLog(ReportingLog):
    """(k) What an eventually consistent read does not find is not there."""

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        return super().read(feed, after, limit, eventual=limit is None)


class EarlyAppender(Appender):
    """(c) Answers before the page is written; the write comes a little later, if at all."""

    def append(
        self, feed: str, lines: Sequence[str], required: Precondition | None = None, trace: str = ""
    ) -> Page:
        page = self._page(self.log.take(feed), encode(lines), self.runtime.new_id())
        process: Process = self.runtime.clock.__self__  # type: ignore[attr-defined]
        put = self.log.put
        process.machine.scheduler.spawn(process.name, lambda: put(feed, page))
        return page


class ForgetfulFollowers(MemoryFollowers):
    """(e) A lease is released in spite of a mark: its wake-up is lost."""

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        return super().release(lease, force=True)


class HastyPusher(Pusher):
    """(f) A joining connection is not sent what it missed on the way."""

    def _send_missed(self, connection: Connection, checkpoint: int) -> bool:
        return True


class TrustingPusher(Pusher):
    """(h) An old change that was posted late is believed instead of the connection."""

    def _join(self, feed: str, change: Change, checkpoint: int) -> None:
        connection = self.delivery.connections.get(change.connection_id)
        if connection is None or connection.state is not State.JOINING:
            return
        asked = replace(connection, filter=change.filter, since=change.since)
        if self._send_missed(asked, checkpoint):
            subscription = Subscription(connection.id, change.filter, max(change.since, checkpoint))
            self.lane.subscriptions.add(feed, subscription)
            live = connection.with_fields(state=State.LIVE)
            if not self.delivery.connections.update(connection, live):
                self.lane.subscriptions.remove(feed, subscription)

    def _leave(self, feed: str, change: Change) -> None:
        self.lane.subscriptions.remove(
            feed, Subscription(change.connection_id, change.filter, change.since)
        )
        super()._leave(feed, change)


class BlindConnections(MemoryConnections):
    """(i) A connection is replaced whatever its version."""

    def update(self, old: Connection, new: Connection) -> bool:
        standing = self.get(old.id)
        return super().update(standing, new) if standing is not None else False


def short_lease() -> AbstractContextManager[None]:
    """(d) A lease ends before its holder is dead.

    Runs that fail release their leases, so only crashes and pauses are left to show it.
    """
    return limited({"LEASE_MS": 2_000, "LEASE_LATE_MS": 1_000, "LEASE_LOOK_MS": 1_000})


PLAIN = Plan(0)
CLEAR = Plan(0, clear=True, sweeps=False)  # without faults, and without the safety net
COPIES, SYNCS, LISTENERS = Plan(0, copies=True), Plan(0, syncs=True), Plan(0, listeners=True)
ARCHIVE = Plan(0, copies=True, archive=True)
CONSUMERS, RELAYS, VOLUME = Plan(0, consumers=True), Plan(0, relays=True), Plan(0, volume=True)
CLOCKS = Plan(0, clocks=True)
ERASURES = Plan(0, server=True, erasures=True)
OWNERS = Plan(0, server=True, owners=True)
LANES, KEYS, SERVER = Plan(0, lanes=True), Plan(0, keys=True), Plan(0, server=True)


@dataclass(frozen=True)
class Mutation:
    """*first* is the seed that noticed it when this was written. The test begins there and tries up
    to *seeds_max*, or fifty more, because any change of the core moves the dice: if it then needs
    many seeds, set *first* to the seed that the test records. *plan* is the world that it runs.
    """

    name: str
    parts: Parts
    first: int = 0
    seeds_max: int = 0
    plan: Plan = PLAIN

    @property
    def last(self) -> int:
        return self.seeds_max or self.first + 50


MUTATIONS = (
    Mutation("a filler is put without condition", Parts(log=UnconditionalFiller), 28, 100),
    Mutation("readers read on after a hole", Parts(HoleReader), 0, 10),
    Mutation("a page missed by a stale read counts as absent", Parts(log=CredulousLog), 107, 300),
    Mutation("acknowledged before it is written", Parts(EarlyAppender), 0, 10),
    Mutation("the lease ends before its holder", Parts(around=short_lease), 520, 900, plan=LANES),
    Mutation(
        "one look is enough to take over", Parts(around=broken_leases.without_margin), 937, 1400
    ),
    Mutation(
        "a checkpoint is saved without a fence", Parts(followers=UnfencedFollowers), 3, plan=CLOCKS
    ),
    Mutation("a mark is lost", Parts(followers=MarklessFollowers), 4, plan=CLEAR),
    Mutation("a lease ends by the taker's clock", Parts(followers=ByTheClock), 1355, 1700),
    Mutation("rows in doubt are taken for written", Parts(HastyProjector), 0, 50),
    Mutation(
        "an unanswered message is sent again", Parts(around=broken_websocket.repeats_all), 3, 50
    ),
    Mutation(
        "late messages are handled",
        Parts(around=broken_websocket.takes_all),
        147,
        300,
        plan=Plan(0, frames=True),
    ),
    Mutation(
        "deletions are remembered by the last settings",
        Parts(around=broken_retention.by_the_last),
        50,
        300,
        plan=Plan(0, copies=True, raised=True),
    ),
    Mutation(
        "the clocks of writers agree", Parts(around=broken_retention.without_margin), 4, plan=COPIES
    ),
    Mutation(
        "a filler is as old as a clock says",
        Parts(around=broken_retention.filled_now),
        42,
        plan=COPIES,
    ),
    Mutation(
        "one feed's trouble ends the sweep",
        Parts(around=broken_retention.at_the_first),
        136,
        300,
        plan=Plan(0, feeds=True),
    ),
    Mutation(
        "pages are not renewed", Parts(around=broken_retention.not_renewed), 32, 200, plan=VOLUME
    ),
    Mutation("rows are put without condition", Parts(state=Unfenced), 0, 300),
    Mutation("a held consumer is not waited for", Parts(HastyRetention), plan=VOLUME),
    Mutation(
        "a lost page is waited for", Parts(around=broken_retention.never_lost), 1, plan=VOLUME
    ),
    Mutation(
        "a lease is released in spite of a mark",
        Parts(followers=ForgetfulFollowers),
        4,
        400,
        plan=CLEAR,
    ),
    Mutation("a join misses what lies between", Parts(HastyPusher), 14, 100),
    Mutation("pages expire before the floor passes", Parts(page_ms=RETENTION_MS // 2), 1, 60),
    Mutation("an old change is believed", Parts(TrustingPusher), 8, 200),
    Mutation("a connection is replaced unseen", Parts(connections=BlindConnections), 249, 400),
    Mutation("a copy continues at the next bucket", Parts(NextBucket), plan=COPIES),
    Mutation("a cut copy forgets deletions", Parts(ForgottenTombstones), 28, plan=COPIES),
    Mutation("the log begins after the rows", Parts(LateCheckpoint), plan=COPIES),
    Mutation("a cut copy begins after its rows", Parts(LateResumption), plan=COPIES),
    Mutation("a copy ends a second early", Parts(FloorOfSecond), plan=COPIES),
    Mutation("a trimmed place is believed", Parts(StraightToTheLog), 2, plan=COPIES),
    Mutation("a reader leaps over what was trimmed", Parts(LeapingReader), plan=COPIES),
    Mutation(
        "removed parents are written after the rows",
        Parts(LateProjector),
        2,
        100,
        plan=Plan(0, without=frozenset({"stale_profile", "lull"})),
    ),
    Mutation("a push does not wait", Parts(HastyLeaves), 14, 20, plan=CLEAR),
    Mutation("removed parents are not reported", Parts(SilentProjector), 1, 20, plan=CLEAR),
    Mutation("removed parents are read too early", Parts(EagerReader), 1, 20, plan=CLEAR),
    Mutation("an object with unknown parents did not leave", Parts(CredulousReader), 67, 100),
    Mutation("a begun page is skipped", Parts(SkipsRestOfPage), 320, 1335),
    Mutation("a copy is silent about leaves", Parts(StickyCopies), 7, plan=COPIES),
    Mutation("a sum subtracts a guess", Parts(GuessingProjector), 0, 20),
    Mutation("a sum loses what was noted", Parts(ForgetfulProjector), 0, 20),
    Mutation("a checkpoint skips a page", Parts(HastyArchiver), plan=ARCHIVE),
    Mutation("a replay leaves the archive early", Parts(LeapingReplay), plan=ARCHIVE),
    Mutation("the last look is before the number", Parts(LooksBefore), plan=SYNCS),
    Mutation("a correction leaps over holes", Parts(LeapsOverHoles), plan=SYNCS),
    Mutation("rows are read before the checkpoint", Parts(RowsFirst), 469, 600, plan=SYNCS),
    Mutation("a full buffer drops items", Parts(buffer=DroppingBuffer), plan=LISTENERS),
    Mutation("a listener starts at push's position", Parts(LateRegistrar), 3, plan=LISTENERS),
    Mutation("an answer may be lost", Parts(CarelessRegistrar), 14, plan=LISTENERS),
    Mutation("a lane releases too far ahead", Parts(LeapingPusher), plan=LANES),
    Mutation("a lane releases and sends", Parts(ClingingPusher), 21, 300, plan=LANES),
    Mutation("a lane takes what is another's", Parts(GraspingPusher), 102, 500, plan=LANES),
    Mutation(
        "a lane is not woken", Parts(DeafPusher), plan=replace(LANES, clear=True, sweeps=False)
    ),
    Mutation("a client with a revoked key still receives", Parts(CarelessPusher), 18, plan=KEYS),
    Mutation(
        "a replay asks before it reads", Parts(around=asks_before_it_reads), 257, 500, plan=KEYS
    ),
    Mutation("the stored rows are read too early", Parts(around=asked_early), 5, plan=KEYS),
    Mutation("a revocation is not noted", Parts(around=unnoted), plan=KEYS),
    Mutation("an overtaken worker is accepted", Parts(around=deaf_to_fences), plan=CONSUMERS),
    Mutation(
        "a begun batch is delivered again in bulk", Parts(around=in_bulk_again), plan=CONSUMERS
    ),
    Mutation(
        "the highest acknowledged is the position", Parts(around=by_the_highest), plan=CONSUMERS
    ),
    Mutation("retention waits for no consumer", Parts(HastyRetention), plan=CONSUMERS),
    Mutation("a consumer falls off unnoticed", Parts(ForgetfulView), plan=CONSUMERS),
    Mutation("a filter changes under a worker", Parts(SilentRefilter), 2, plan=CONSUMERS),
    Mutation("a parked message is forgotten", Parts(Drops), 1, plan=CONSUMERS),
    Mutation(
        "the log begins after the last rows",
        Parts(around=broken_relays.latest_page),
        2,
        plan=RELAYS,
    ),
    Mutation(
        "missing pages are not reported", Parts(around=broken_relays.without_floor), plan=RELAYS
    ),
    Mutation("the last writer wins", Parts(around=broken_relays.any_version), 62, plan=RELAYS),
    Mutation(
        "a checkpoint without its page", Parts(around=broken_relays.in_two_writes), plan=RELAYS
    ),
    Mutation(
        "a leader's lease is taken too early", Parts(around=broken_relays.any_lease), plan=RELAYS
    ),
    Mutation(
        "a number and its page are two transactions",
        Parts(around=broken_server.in_two_transactions),
        3,
        plan=SERVER,
    ),
    Mutation(
        "the loop waits for the database", Parts(around=broken_server.waits_in_loop), 0, plan=SERVER
    ),
    Mutation(
        "a failed rollback keeps the lock", Parts(around=broken_server.keeps_lock), 14, plan=SERVER
    ),
    Mutation(
        "the loop waits for an issuer", Parts(around=broken_server.fetches_in_loop), 3, plan=SERVER
    ),
    Mutation(
        "a lease lasts as long as a fast clock said",
        Parts(around=broken_server.any_deadline),
        1,
        plan=SERVER,
    ),
    Mutation(
        "silence is measured by the wall clock",
        Parts(around=broken_server.silent_by_wall),
        18,
        plan=SERVER,
    ),
    Mutation(
        "a tombstone counts as a live object",
        Parts(around=broken_server.tombstones_lived),
        1,
        plan=SERVER,
    ),
    Mutation("a commit is not synced", Parts(around=broken_server.not_synced), 2, plan=SERVER),
    Mutation("nothing is synced", Parts(around=broken_server.never_synced), 0, plan=SERVER),
    Mutation(
        "a failed job is repeated with its writes",
        Parts(around=broken_server.keeps_jobs),
        3,
        plan=SERVER,
    ),
    Mutation(
        "the keys of requests are not stored",
        Parts(around=broken_server.forgets_keys),
        0,
        plan=SERVER,
    ),
    Mutation(
        "answered before the commit", Parts(around=broken_server.answers_early), 0, plan=SERVER
    ),
    Mutation(
        "a commit does not wake push", Parts(around=broken_server.wakes_no_push), 0, plan=SERVER
    ),
    Mutation(
        "a restored log continues with its old numbers",
        Parts(around=broken_server.numbers_again),
        7,
        plan=SERVER,
    ),
    Mutation(
        "the losses of a restore are not reported",
        Parts(around=broken_server.losses_forgotten),
        0,
        plan=SERVER,
    ),
    Mutation(
        "a copied file counts as the data file",
        Parts(around=broken_server.copies_unnoticed),
        63,
        plan=SERVER,
    ),
    Mutation(
        "a failed run keeps its lease", Parts(around=broken_server.keeps_leases), 5, plan=SERVER
    ),
    Mutation(
        "a failed run is not repeated", Parts(around=broken_server.not_again), 25, plan=SERVER
    ),
    Mutation(
        "a checkpoint counts before the commit",
        Parts(around=broken_server.checkpoints_early),
        37,
        plan=SERVER,
    ),
    Mutation(
        "a wake-up during a run is lost", Parts(around=broken_server.wakes_lost), 1, plan=SERVER
    ),
    Mutation(
        "a promoted copy uses numbers of its master",
        Parts(around=broken_server.promotes_in_place),
        0,
        plan=SERVER,
    ),
    Mutation(
        "a key is forgotten when any clock says so",
        Parts(around=broken_server.keys_by_wall),
        16,
        plan=SERVER,
    ),
    Mutation(
        "events of one object are sent side by side",
        Parts(around=broken_server.hooks_in_bulk),
        13,
        plan=SERVER,
    ),
    Mutation(
        "an object that has moved is corrected",
        Parts(around=broken_server.corrects_all),
        3,
        plan=SERVER,
    ),
    Mutation(
        "a feed that is created again has the key of its predecessor",
        Parts(around=broken_server.keeps_key),
        0,
        plan=OWNERS,
    ),
    Mutation(
        "the log of a successor begins with page 1",
        Parts(around=broken_server.begins_at_one),
        1,
        plan=OWNERS,
    ),
    Mutation(
        "a removal forgets some tables", Parts(around=broken_server.removes_some), 0, plan=OWNERS
    ),
    Mutation(
        "a late request appends to a deleted feed",
        Parts(around=broken_server.appends_late),
        0,
        plan=OWNERS,
    ),
    Mutation(
        "an erasure drops entries", Parts(around=broken_server.drops_entries), 0, plan=ERASURES
    ),
    Mutation(
        "an erasure reads some pages only", Parts(around=broken_server.ends_early), 1, plan=ERASURES
    ),
)


# For each kind of world the one that most seeds notice: `make test` runs these, `make sim` all.
OF_EACH_WORLD = tuple(
    {each.plan: each for each in reversed(sorted(MUTATIONS, key=lambda each: each.first))}.values()
)


def noticing_seed(mutation: Mutation) -> int | None:
    """Return the first seed from *first* on that notices; None: none up to the last does."""
    for seed in range(mutation.first, mutation.last):
        try:
            run(replace(mutation.plan, seed=seed), mutation.parts)
        except Failed:
            return seed
    return None
