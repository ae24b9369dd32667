"""
Broken protocols: the simulation is worth its time only if it notices each of them.

Every mutation is the real code with one rule taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from tidings.core import limits
from tidings.core.followers.leases import Lease
from tidings.core.log.append import Appender
from tidings.core.log.preconditions import Precondition
from tidings.core.log.reader import Reader, Run
from tidings.core.model.pages import Page, Pages, encode
from tidings.core.websocket.connections import Change, Connection, Subscription
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.session import State

from tests.fakes import MemoryConnections, MemoryFollowers
from tests.model.broken_correctors import LeapsOverHoles, LooksBefore, RowsFirst
from tests.simulation import (
    broken_deliveries,
    broken_leases,
    broken_relays,
    broken_retention,
    broken_settings,
)
from tests.simulation.broken_archives import HastyArchiver, LeapingReplay
from tests.simulation.broken_consumers import (
    Drops,
    ForgetfulView,
    HastyTrimmer,
    SilentRefilter,
    by_the_highest,
    deaf_to_fences,
    in_bulk_again,
)
from tests.simulation.broken_copies import (
    FloorOfSecond,
    ForgottenTombstones,
    LateCheckpoint,
    LateResumption,
    LeapingReader,
    NextBucket,
    StraightToTheLog,
)
from tests.simulation.broken_leases import ByTheClock, HastyProjector, Unfenced
from tests.simulation.broken_leaves import (
    CredulousReader,
    EagerReader,
    HastyLeaves,
    LateProjector,
    SilentProjector,
    StickyCopies,
    WholePages,
)
from tests.simulation.broken_listeners import CarelessRegistrar, DroppingBuffer, LateRegistrar
from tests.simulation.parts import RETENTION_MS, Parts
from tests.simulation.process import Process
from tests.simulation.stores import WatchedLog
from tests.simulation.story import Failed, Plan, tell

Around = Callable[[], AbstractContextManager[object]]


class UnconditionalFiller(WatchedLog):
    """(a) A filler is put whether or not the number is taken."""

    def put(self, feed: str, page: Page) -> str:
        if not page.body:
            self._feeds[feed].pages.pop(page.number, None)
            numbers = self._feeds[feed].numbers
            self._feeds[feed].numbers = [number for number in numbers if number != page.number]
        return super().put(feed, page)


class HoleReader(Reader):
    """(b) Reads on behind a hole."""

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        pages = self.log.read(feed, after, limit)
        return Run(pages) if pages else super().read(feed, after, limit)


class CredulousLog(WatchedLog):
    """(k) What an eventually consistent read does not find is not there."""

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        return super().read(feed, after, limit, eventual=limit is None)


class EarlyAppender(Appender):
    """(c) Answers before the page is written; the write comes a little later, if at all."""

    def append(self, feed: str, lines: Sequence[str], required: Precondition | None = None) -> Page:
        page = self._page(self.log.take(feed), encode(lines), self.new_id())
        process: Process = self.clock.__self__  # type: ignore[attr-defined]
        put = self.log.put
        process.machine.scheduler.spawn(process.name, lambda: put(feed, page))
        return page


class ForgetfulFollowers(MemoryFollowers):
    """(e) A lease is let go although a bell left its mark: its wake-up is lost."""

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
            watch = Subscription(connection.id, change.filter, max(change.since, checkpoint))
            self.watches.add(feed, watch)
            live = connection.changed(state=State.LIVE)
            if not self.delivery.connections.update(connection, live):
                self.watches.remove(feed, watch)

    def _leave(self, feed: str, change: Change) -> None:
        self.watches.remove(feed, Subscription(change.connection_id, change.filter, change.since))
        super()._leave(feed, change)


class BlindConnections(MemoryConnections):
    """(i) A connection is replaced whatever its version."""

    def update(self, old: Connection, new: Connection) -> bool:
        standing = self.get(old.id)
        return super().update(standing, new) if standing is not None else False


@contextmanager
def short_lease() -> Iterator[None]:
    """(d) A lease ends before its holder is dead."""
    kept = limits.LEASE_MS, limits.LEASE_LATE_MS, limits.LEASE_LOOK_MS
    limits.LEASE_MS, limits.LEASE_LATE_MS, limits.LEASE_LOOK_MS = 4_000, 2_000, 2_000
    try:
        yield
    finally:
        limits.LEASE_MS, limits.LEASE_LATE_MS, limits.LEASE_LOOK_MS = kept


@dataclass(frozen=True)
class Mutation:
    """
    *took* is how many seeds from 0 on it took when this was written. The test begins a few
    before that and goes on to *seeds_max*, because any change of the core moves the dice.

    *clear* looks for it without faults and without the safety net of the sweep, *copies* among
    consumers that copy, *syncs* among corrections, *listeners* among listeners, *consumers* among
    named ones, *relays* among feeds that copy, *feeds* where one is throttled, *clocks* where they
    are minutes off, *volume* where there are many pages, *frames* where they come late, *raised*
    where the retention grows.
    """

    name: str
    parts: Parts
    took: int
    seeds_max: int
    clear: bool = False
    copies: bool = False
    syncs: bool = False
    listeners: bool = False
    consumers: bool = False
    archive: bool = False
    relays: bool = False
    feeds: bool = False
    clocks: bool = False
    volume: bool = False
    frames: bool = False
    raised: bool = False
    without: frozenset[str] = frozenset()  # faults that would excuse it

    def plan(self, seed: int) -> Plan:
        return Plan(
            seed,
            clear=self.clear,
            sweeps=not self.clear,
            copies=self.copies,
            syncs=self.syncs,
            listeners=self.listeners,
            consumers=self.consumers,
            archive=self.archive,
            relays=self.relays,
            feeds=self.feeds,
            clocks=self.clocks,
            volume=self.volume,
            frames=self.frames,
            raised=self.raised,
            without=self.without,
        )


def _of_copies(name: str, parts: Parts, took: int = 1) -> Mutation:
    return Mutation(name, parts, took, took + 50, copies=True)


def _of_archives(name: str, parts: Parts, took: int = 1) -> Mutation:
    return Mutation(name, parts, took, took + 50, copies=True, archive=True)


def _of_syncs(name: str, parts: Parts, took: int = 1) -> Mutation:
    return Mutation(name, parts, took, took + 50, syncs=True)


def _of_listeners(name: str, parts: Parts, took: int = 1) -> Mutation:
    return Mutation(name, parts, took, took + 50, listeners=True)


def _of_consumers(name: str, parts: Parts, took: int = 1) -> Mutation:
    return Mutation(name, parts, took, took + 50, consumers=True)


def _of_volume(name: str, parts: Parts, took: int = 1) -> Mutation:
    return Mutation(name, parts, took, took + 50, volume=True)


def _of_relays(name: str, around: Around, took: int = 1) -> Mutation:
    return Mutation(name, Parts(around=around), took, took + 50, relays=True)


MUTATIONS = (
    Mutation("a filler is put without condition", Parts(log=UnconditionalFiller), 31, 100),
    Mutation("readers read on behind a hole", Parts(reader=HoleReader), 1, 10),
    Mutation("what a stale read misses is not there", Parts(log=CredulousLog), 36, 300),
    Mutation("acknowledged before it is written", Parts(appender=EarlyAppender), 1, 10),
    Mutation("the lease ends before its holder", Parts(around=short_lease), 671, 900),
    Mutation("who has looked once takes over", Parts(around=broken_leases.without_margin), 72, 300),
    Mutation("a lease ends by the taker's clock", Parts(followers=ByTheClock), 14, 300),
    Mutation("rows in doubt are taken for written", Parts(projector=HastyProjector), 1, 50),
    Mutation(
        "what was not answered is sent again", Parts(around=broken_deliveries.repeats_all), 8, 50
    ),
    Mutation(
        "what comes late is handled",
        Parts(around=broken_deliveries.takes_all),
        37,
        300,
        frames=True,
    ),
    Mutation(
        "deletions are remembered by the last settings",
        Parts(around=broken_settings.by_the_last),
        7,
        300,
        copies=True,
        raised=True,
    ),
    _of_copies("the clocks of writers agree", Parts(around=broken_settings.without_margin), 9),
    _of_copies("a filler is as old as a clock says", Parts(around=broken_settings.filled_now), 23),
    Mutation(
        "one feed's trouble ends the sweep",
        Parts(around=broken_settings.at_the_first),
        39,
        300,
        feeds=True,
    ),
    _of_volume("pages are not renewed", Parts(around=broken_retention.not_renewed), 22),
    Mutation("rows are put without condition", Parts(state=Unfenced), 3, 300),
    _of_volume("a held consumer is not waited for", Parts(trimmer=HastyTrimmer)),
    _of_volume("a lost page is waited for", Parts(around=broken_retention.never_lost)),
    Mutation("let go in spite of a mark", Parts(followers=ForgetfulFollowers), 9, 400, clear=True),
    Mutation("a join misses what lies between", Parts(pusher=HastyPusher), 2, 100),
    Mutation("pages expire before the floor passes", Parts(page_ms=RETENTION_MS // 2), 1, 60),
    Mutation("an old change is believed", Parts(pusher=TrustingPusher), 2, 200),
    Mutation("a connection is replaced unseen", Parts(connections=BlindConnections), 812, 1000),
    _of_copies("a copy goes on at the next bucket", Parts(catch_up=NextBucket)),
    _of_copies("a cut copy forgets deletions", Parts(catch_up=ForgottenTombstones), 23),
    _of_copies("the log begins behind the rows", Parts(catch_up=LateCheckpoint)),
    _of_copies("a cut copy begins behind its rows", Parts(catch_up=LateResumption)),
    _of_copies("a copy ends a second early", Parts(catch_up=FloorOfSecond)),
    _of_copies("a trimmed place is believed", Parts(catch_up=StraightToTheLog), 2),
    _of_copies("a reader leaps over what was trimmed", Parts(reader=LeapingReader)),
    Mutation(
        "departures come after the rows",
        Parts(projector=LateProjector),
        2,
        100,
        without=frozenset({"stale_profile", "lull"}),
    ),
    Mutation("a push does not wait", Parts(pusher=HastyLeaves), 15, 20, clear=True),
    Mutation("nobody hears of departures", Parts(projector=SilentProjector), 3, 20, clear=True),
    Mutation("departures are read too early", Parts(departures=EagerReader), 3, 20, clear=True),
    Mutation("what is unknown did not leave", Parts(departures=CredulousReader), 2, 100),
    Mutation("a begun page is left behind", Parts(catch_up=WholePages), 36, 1335),
    _of_copies("a copy is silent about leaves", Parts(catch_up=StickyCopies), 8),
    _of_archives("a checkpoint leaves a page behind", Parts(archiver=HastyArchiver)),
    _of_archives("a replay leaves the archive early", Parts(catch_up=LeapingReplay), 3),
    _of_syncs("the last look is before the number", Parts(corrector=LooksBefore)),
    _of_syncs("a correction leaps over holes", Parts(corrector=LeapsOverHoles)),
    _of_syncs("rows are read before the checkpoint", Parts(corrector=RowsFirst), 89),
    _of_listeners("a full buffer drops items", Parts(buffer=DroppingBuffer)),
    _of_listeners("a listener starts where push stands", Parts(registrar=LateRegistrar), 3),
    _of_listeners("an answer may be lost", Parts(registrar=CarelessRegistrar), 8),
    _of_consumers("who was overtaken is heard", Parts(around=deaf_to_fences)),
    _of_consumers("what was begun comes in bulk", Parts(around=in_bulk_again)),
    _of_consumers("the highest acknowledged is the position", Parts(around=by_the_highest)),
    _of_consumers("retention waits for nobody", Parts(trimmer=HastyTrimmer)),
    _of_consumers("a consumer falls off unnoticed", Parts(view=ForgetfulView)),
    _of_consumers("a filter changes under a worker", Parts(overseer=SilentRefilter), 2),
    _of_consumers("a parked message is forgotten", Parts(workers=Drops)),
    _of_relays("the log begins behind the last rows", broken_relays.latest_page),
    _of_relays("nobody hears of missing pages", broken_relays.without_floor),
    _of_relays("whoever writes last is right", broken_relays.any_version, 6),
    _of_relays("a checkpoint without its page", broken_relays.in_two_writes),
    _of_relays("a seat is taken before its time", broken_relays.any_seat),
)
_BEFORE = 5


def seeds_to_catch(mutation: Mutation, first: int = 0) -> tuple[int, str] | None:
    """The number of the seed that noticed, counted from 1, and what was seen; None: unnoticed."""
    for seed in range(first, mutation.seeds_max):
        try:
            tell(mutation.plan(seed), mutation.parts)
        except Failed as failed:
            return seed + 1, failed.reason
    return None


def starting_at(mutation: Mutation) -> int:
    return max(0, mutation.took - _BEFORE)
