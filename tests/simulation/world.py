"""The world: stores, functions, the network of wake-ups, the schedule and the clients' lines.

Producers and consumers live in modules of their own; `simulate` sets a world going and checks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from tests.simulation.faults import Faults
from tests.simulation.functions import FEED, Functions
from tests.simulation.model import Log
from tests.simulation.parts import Parts
from tests.simulation.process import History, Machine, Process
from tests.simulation.settings import Deployment
from tests.simulation.stores import Lines, ReportingLog, Stores
from tidings.core import limits
from tidings.core.catchup.catchup import CatchUp
from tidings.core.followers.follower import FOLLOWERS
from tidings.core.followers.leases import Observation
from tidings.core.maintenance.retention import Round
from tidings.core.model.feeds import Retention

INGEST_TIMEOUT_S, RECEIVE_TIMEOUT_S, CONNECT_TIMEOUT_S, SWEEP_TIMEOUT_S = 10, 10, 5, 55
STREAM_TIMEOUT_S, CONSUME_TIMEOUT_S = 900, 10
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
_LATE_HOLE_MS = 6 * HOUR_MS  # long before it is taken for a page that is lost (`HOLE_LOST_MS`)
_LATE_ROUND_MS = limits.RENEW_EVERY_MS + HOUR_MS  # an hourly sweep that was to begin it failed
# The maximum delay of a replica of the log: in truth less than a second.
_REPLICA_MS = 3_000
_SEND_TIMEOUT_MS = 1_000


class World:
    def __init__(self, random: Random, faults: Faults, parts: Parts) -> None:
        self.random, self.faults = random, faults
        self.machine = Machine(random, faults, History())
        self.scheduler = self.machine.scheduler
        self.models = {FEED: Log()}
        self.model = self.models[FEED]
        self.lost: Counter[str] = Counter()  # the page of a feed that is gone by a mistake
        self.acknowledged: Counter[str] = Counter()  # the highest page of each feed so far
        self.lull_until_ms = 0
        self.late_frame_ms = (5_000, 90_000)  # at most, one or the other
        self.sweeps = True
        self._busy_until: dict[str, int] = {}
        stores = Stores(
            parts.log(self.models, self._moved, faults.saw),
            parts.followers(),
            parts.connections,
            Lines(self._busy, self._lose, lambda: self.scheduler.current, faults.saw),
            parts.state(),
        )
        self.stores = stores
        stores.log.now_ms, stores.log.stale = lambda: self.scheduler.now_ms, self._is_stale
        self.deployment = Deployment(random, lambda: self.scheduler.now_ms, parts.page_ms)
        self.functions = Functions(parts, stores, self, self.deployment)
        self.scheduler.spawn("schedule", self._schedule)
        self.scheduler.spawn("ttl", self._delete_expired)

    # --- invocations -------------------------------------------------------------------------

    def ingest(self, body: Callable[[Process], None]) -> Process:
        return self.machine.start("ingest", INGEST_TIMEOUT_S, body)

    def correct(self, body: Callable[[Process], None]) -> None:
        """Run *body* in a process; the caller repeats it if it fails."""
        self.machine.start("correct", limits.CORRECT_TIMEOUT_S, body)

    def consume(self, body: Callable[[Process], None]) -> None:
        """Run *body* in a process; the caller repeats it if it fails."""
        self.machine.start("consume", CONSUME_TIMEOUT_S, body)

    def trim(self, age: Retention, cap_ms: int) -> None:
        """Trim the log as the sweep does, with another age."""

        def body(process: Process) -> None:
            self.functions.retention_service(process, age, cap_ms).run(FEED)

        self.machine.start("sweep", SWEEP_TIMEOUT_S, body)

    def catch_up(self) -> CatchUp:
        """Return a catch-up that no fault disturbs."""
        return self.functions.undisturbed(lambda: self.scheduler.now_ms).catch_up

    def floor(self) -> int:
        return self.stores.log.floor(FEED)

    def gone_until(self, feed: str) -> int:
        """Return the first page after all those that the log has removed."""
        return max(self.stores.log.floor(feed), self.lost[feed] + 1)

    def add_feed(self, name: str) -> None:
        self.models[name] = Log()
        self.functions.feeds = frozenset(self.models)

    def receive(self, connection_id: str, text: str) -> None:
        self.machine.start(
            "receive",
            RECEIVE_TIMEOUT_S,
            lambda process: self.functions.receive(process, connection_id, text),
        )

    def connect(self, connection_id: str, opened: Callable[[], None]) -> None:
        def body(process: Process) -> None:
            self.functions.connect(process, connection_id)
            opened()

        self.machine.start("connect", CONNECT_TIMEOUT_S, body)

    def disconnect(self, connection_id: str) -> None:
        """Send the notice of the gateway, late or never."""
        if not self.faults.strikes("goodbye_lost"):
            self._late(
                lambda: self.machine.start(
                    "disconnect",
                    CONNECT_TIMEOUT_S,
                    lambda process: self.functions.disconnect(process, connection_id),
                )
            )

    # --- wake-ups: `Waker`, and the stream of the log table ---------------------------------------

    def wake(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        self._network(lambda: self._follow(follower, (feed,), observation))

    def replay(self, connection_id: str) -> None:
        self._network(
            lambda: self.machine.start(
                "replay",
                limits.REPLAY_TIMEOUT_S,
                lambda process: self.functions.replay(process, connection_id),
            )
        )

    def _moved(self, feed: str) -> None:
        """Wake the followers by the stream of the log, perhaps with records of other feeds."""
        feeds: tuple[str, ...] = (feed,)
        if len(self.models) > 1 and self.faults.strikes("rung_together"):
            feeds = tuple(self.random.sample(sorted(self.models), len(self.models)))
        for follower in FOLLOWERS:
            self._network(partial(self._follow, follower, feeds))

    def _is_stale(self, age_ms: int) -> bool:
        """Return True if the replica of this read lacks a page of that age."""
        return age_ms <= _REPLICA_MS and self.faults.strikes("stale_read")

    def _follow(
        self, follower: str, feeds: tuple[str, ...], observation: Observation | None = None
    ) -> None:
        def body(process: Process) -> None:
            if self.faults.strikes("slow_filler"):
                process.slow["log.put"] = self.random.uniform(0, 6_000)
            self.functions.follow(process, follower, feeds, observation)

        self.machine.start(f"follow-{follower}", limits.FOLLOW_TIMEOUT_S, body, retries=1)

    def _network(self, call: Callable[[], object]) -> None:
        """Send a wake-up that may be lost, repeated, late, and so in any order."""
        if self.faults.strikes("wake_lost"):
            return
        self._late(call)
        if self.faults.strikes("wake_repeated"):
            self._late(call)

    def _late(self, call: Callable[[], object]) -> None:
        longest = 20_000 if self.faults.strikes("wake_late") else 300
        self.scheduler.after(self.random.uniform(5, longest), call)

    # --- sockets ------------------------------------------------------------------------------

    def _busy(self, connection_id: str) -> bool:
        now = self.scheduler.now_ms
        if self.faults.strikes("throttle"):
            self._busy_until[connection_id] = now + self.random.randint(1, 300)
        elif self.faults.strikes("throttle_long"):
            self._busy_until[connection_id] = now + 5_000
        return self._busy_until.get(connection_id, 0) > now

    def _lose(self, connection_id: str, frame: str) -> bool:
        """Return True if the fate of *frame* is unknown: it comes late, after others, or never."""
        if not self.faults.strikes("send_unanswered"):
            return False
        if self.random.random() < 0.8:
            delay = self.random.uniform(0, self.random.choice(self.late_frame_ms))
            lines = self.stores.sockets
            arrive = partial(lines.arrive, connection_id, frame, lines.subscribed[connection_id])
            self.scheduler.after(delay, arrive)
        self.scheduler.sleep(_SEND_TIMEOUT_MS)
        return True

    # --- time ---------------------------------------------------------------------------------

    def wait_for(self, true: Callable[[], object], within_ms: float, every_ms: float) -> bool:
        """Let the calling task sleep until something is true; whether it is."""
        return self.scheduler.wait(true, within_ms, every_ms)

    def lull(self, hours: int) -> None:
        """Run the schedule only once an hour for *hours*, so that they pass quickly."""
        self.lull_until_ms = self.scheduler.now_ms + hours * HOUR_MS

    @property
    def in_lull(self) -> bool:
        return self.scheduler.now_ms < self.lull_until_ms

    def sleep_through_lull(self) -> bool:
        """Sleep until the lull is over; return True if there was one."""
        slept = self.in_lull
        while self.in_lull:
            self.scheduler.sleep(self.lull_until_ms - self.scheduler.now_ms + 1)
        return slept

    def stay_away(self) -> None:
        """Stay away sometimes, until after the lull, or until it is calm."""
        if self.faults.strikes("absent"):
            while not self.in_lull and self.faults.rates["absent"]:
                self.scheduler.sleep(1_000)

    def _schedule(self) -> None:
        while True:
            now = self.scheduler.now_ms
            pause = MINUTE_MS - now % MINUTE_MS
            if self.in_lull and not self._is_late():
                pause = min(HOUR_MS - now % HOUR_MS, self.lull_until_ms - now + pause)
            self.scheduler.sleep(pause)
            if self.sweeps:
                self._sweep()
                if self.faults.strikes("sweep_repeated"):
                    for _ in range(3):
                        self.scheduler.after(self.random.uniform(0, MINUTE_MS), self._sweep)

    def _is_late(self) -> bool:
        """Whether hourly sweeps are too few: followers that wait would find a hole a day old, or
        pages expire, because sweeps failed that in truth come sixty times as often.
        """
        now_ms = self.scheduler.now_ms
        due = self.stores.due_feeds.due(now_ms)
        rounds = [self.stores.renewals.get(each.feed) or Round() for each in due]
        if any(each.began_ms < now_ms - _LATE_ROUND_MS for each in rounds):
            return True
        since_ms = now_ms - _LATE_HOLE_MS
        return any(model.waits_since_s * 1_000 < since_ms for model in self.models.values())

    def _sweep(self) -> None:
        self.machine.start("sweep", SWEEP_TIMEOUT_S, self.functions.sweep)

    def _delete_expired(self) -> None:
        """TTL: expired items are deleted, some now, some later, in any order."""
        while True:
            self.scheduler.sleep(20 * MINUTE_MS if self.in_lull else 30_000)
            log: ReportingLog = self.stores.log
            gone = log.expire_some(self.scheduler.now_ms, lambda: self.faults.strikes("expire"))
            if gone:
                self.faults.saw("page expired", gone)
                self.machine.note("ttl", "expired", gone)
            if self.faults.strikes("expire"):
                self.stores.state.expire(self.scheduler.now_ms)
                self.stores.removed_parents.expire(self.scheduler.now_ms)
