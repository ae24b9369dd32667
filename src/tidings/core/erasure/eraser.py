"""The job that erases: it removes the content of entries from every store of a feed, step by step.

The job may be killed at any point. Each step changes only what still has content to be removed, and
the record of the erasure (`records`) has the last page that was handled, so a later run continues.
All erasures that are in the same phase share one reading of the log or the archive. The steps that
rewrite data are in `rewriting`.

The state needs no step, because the erasure entry has replaced the object's row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.erasure.entries import Scrubber
from tidings.core.erasure.records import Phase
from tidings.core.errors import Unavailable
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import as_event, event_of
from tidings.core.state.rows import Difference, Kind, bucket_rows
from tidings.core.sync import corrections

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from tidings.core.effects import Runtime
    from tidings.core.erasure.entries import Scrubbed
    from tidings.core.erasure.records import Erasure, ErasureStore, Ledger
    from tidings.core.followers.follower import BuiltInFollowers
    from tidings.core.followers.leases import Waker
    from tidings.core.log.reader import Reader
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.state.rows import StateStore
    from tidings.core.sync.apply import Corrector

# The latest phase is first, so that an erasure begins to rewrite the log only when no other is
# between LOG and SPACE. All that wait then begin together, and share the reading.
_ORDER = (
    Phase.SPACE,
    Phase.ARCHIVE,
    Phase.PARKED,
    Phase.LOG,
    Phase.KEPT,
    Phase.PARENTS,
    Phase.WAITING,
)


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureProgress:
    """The records of the erasures that the job works on, and the search for their data.

    *rest* is called often; it may sleep, to leave the processor to others.
    """

    store: ErasureStore
    profiles: ProfileStore
    rest: Callable[[], object] = _nothing

    def save(self, feed: str, erasure: Erasure, **changed: object) -> None:
        """Store *erasure* with the *changed* fields."""
        if not self.store.save(feed, replace(erasure, **changed)):  # type: ignore[arg-type]
            raise Unavailable(f"{feed}: another process works on the erasure {erasure.id}")

    def begin(self, feed: str, erasure: Erasure, phase: Phase, **changed: object) -> None:
        """Store *erasure* at the beginning of *phase*, with the *changed* fields."""
        self.save(feed, erasure, phase=phase, page=0, **changed)

    def keeps_ids(self, feed: str) -> bool:
        """Return True if erased entries of *feed* keep their ids."""
        return not self.profiles.profile(feed).ids_personal

    def scrubber(self, feed: str, erasures: Sequence[Erasure]) -> Scrubber:
        """Return the scrubber that finds the data of *erasures*."""
        return Scrubber([each.target for each in erasures], self.keeps_ids(feed))

    def scrub(self, scrubber: Scrubber, pages: Sequence[Page]) -> dict[int, Scrubbed]:
        """Return those of *pages* with entries of a target, by their numbers."""
        found: dict[int, Scrubbed] = {}
        for page in pages:
            self.rest()
            if scrubbed := scrubber.scrub(page):
                found[page.number] = scrubbed
        return found


class Step(Protocol):
    """The work of one phase."""

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Work on *erasures*, which are in this phase; return False if nothing can be done now."""


@dataclass(frozen=True, slots=True)
class Eraser:
    """The job of all feeds; one process at a time runs it for a feed. It has a step per phase."""

    store: ErasureStore
    steps: Mapping[Phase, Step]
    runtime: Runtime

    def run(self, feed: str, until_ms: int) -> bool:
        """Work on the erasures of *feed* until *until_ms* by the steady clock, at least one step.

        Return True if more can be done now. Otherwise, nothing is left to do, or the job waits for
        followers, for corrections of a copied feed, or for the end of the phase KEPT.

        Raises:
            Unavailable: a store does not answer, or another process runs the job.
        """
        while self._step(feed):
            if self.runtime.steady() >= until_ms:
                return True
        return False

    def awaits_followers(self, feed: str) -> bool:
        """Return True if an erasure waits for followers, and no other one holds it up."""
        unfinished = self.store.unfinished(feed)
        return {each.phase for each in unfinished if each.is_waiting} == {Phase.WAITING}

    def waits(self, feed: str) -> bool:
        """Return True if an erasure waits for followers, for corrections, or for a free file."""
        return any(each.is_waiting for each in self.store.unfinished(feed))

    def _step(self, feed: str) -> bool:
        """Do one step of the latest phase with an erasure; return False if none can be done."""
        unfinished = self.store.unfinished(feed)
        busy = any(each.is_between(Phase.LOG, Phase.SPACE) for each in unfinished)
        for phase in _ORDER:
            if phase is Phase.WAITING and busy:
                break
            some = [each for each in unfinished if each.phase is phase]
            if some and self.steps[phase].run(feed, some):
                return True
        return False


@dataclass(frozen=True, slots=True)
class ParentCorrections:
    """The step PARENTS: other objects lose the erased object as a parent.

    The feeds *chained* are copies.
    """

    progress: ErasureProgress
    reader: Reader
    corrector: Corrector
    chained: Container[str] = ()

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Append corrections for the objects of some buckets.

        Erasures that have reached the same bucket share its rows; the others wait. A copy appends
        nothing: it receives the corrections, and waits until no row needs one.
        """
        through = self.reader.checkpoints.checkpoints(feed).get(STATE, 0)  # read before the rows
        ready = [each for each in erasures if through >= each.place.page]
        begin = max((each.page for each in ready), default=0)
        some = [each for each in ready if each.page == begin]
        part, counts = self._corrections(feed, begin, self.progress.scrubber(feed, some))
        if not some or (part and feed in self.chained):
            return False
        if part:
            outcome = self.corrector.apply(feed, through, part)
            while not outcome.complete:
                outcome = self.corrector.apply(feed, through, part, outcome.behind)
        bucket = begin + limits.ERASURE_BUCKETS
        if is_last := bucket >= limits.BUCKETS:
            # After all corrections, also those of a killed run.
            through = self.reader.log.head(feed)
        for erasure in some:
            corrected = erasure.corrected + counts[erasure.target.name]
            if is_last:
                self.progress.begin(
                    feed, erasure, Phase.WAITING, corrected=corrected, through=through
                )
            else:
                self.progress.save(feed, erasure, page=bucket, corrected=corrected)
        return True

    def _corrections(
        self, feed: str, begin: int, scrubber: Scrubber
    ) -> tuple[list[bytes], Counter[str]]:
        """Return corrections of the next buckets, and their number by `Target.name`."""
        part, counts = list[bytes](), Counter[str]()
        for bucket in range(begin, begin + limits.ERASURE_BUCKETS) if scrubber.targets else ():
            for row in bucket_rows(self.corrector.states.read, feed, bucket):
                self.progress.rest()
                # The row of an erased object is as new as its erasure, so rows only lose parents.
                line, names = scrubber.scrub_entry(row.line, (row.page, row.slot))
                if names and row.is_complete:
                    event = "delete" if event_of(line) == "delete" else "update"
                    position = corrections.Position(row.page, row.slot)
                    found = corrections.correction(as_event(line, event), position)
                    part.append(corrections.encode(found).encode())
                    counts.update(names)
        return part, counts


@dataclass(frozen=True, slots=True)
class FollowerWait:
    """The step WAITING, until all followers have handled the pages to be rewritten."""

    progress: ErasureProgress
    reader: Reader
    followers: BuiltInFollowers
    waker: Waker
    ledger: Ledger | None = None

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Begin to rewrite the log for each erasure that all followers have handled."""
        handled = self.followers.checkpoints(feed, self.reader.checkpoints.checkpoints(feed))
        moved = False
        for erasure in erasures:
            if min(handled.values()) >= erasure.through:
                first = erasure.place.page if erasure.final else self.reader.log.floor(feed)
                if self.ledger is not None:
                    self.ledger.add(feed, erasure)  # a copy has not accepted the request itself
                self.progress.save(feed, erasure, phase=Phase.LOG, page=first - 1)
                moved = True
        if not moved:
            for follower in (name for name, page in handled.items() if page < erasures[0].through):
                self.waker.wake(feed, follower)
        return moved


@dataclass(frozen=True, slots=True)
class SpaceOverwriter:
    """The step SPACE.

    *overwrite* overwrites the free space of the database file; it returns False if it must be
    called again later. *on_nothing* is called with each erasure that has found no data to erase.
    """

    progress: ErasureProgress
    runtime: Runtime
    overwrite: Callable[[], bool] | None = None
    ledger: Ledger | None = None
    on_nothing: Callable[[str, Erasure], object] = _nothing

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Overwrite the free space of the database file; then only the erasure entry is left."""
        if self.overwrite is not None and not self.overwrite():
            return False
        for erasure in erasures:
            if erasure.final:
                if self.ledger is not None:
                    self.ledger.remove(feed, erasure.id)
                self.progress.begin(feed, erasure, Phase.DONE, object_id="")
            else:
                self.progress.begin(feed, erasure, Phase.KEPT, done_ms=self.runtime.clock())
                if not erasure.has_found:
                    self.on_nothing(feed, erasure)
        return True


@dataclass(frozen=True, slots=True)
class TombstoneEnd:
    """The step KEPT, until the tombstone has expired."""

    progress: ErasureProgress
    reader: Reader
    states: StateStore
    runtime: Runtime

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Remove the tombstone and begin to erase the entry of each erasure that is old enough.

        If the log still has the entry, postpone this once.
        """
        now_ms = self.runtime.expiring()
        due = [each for each in erasures if now_ms >= each.until_ms]
        floor = self.reader.log.floor(feed) if due else 0
        for erasure in due:
            if not erasure.page and erasure.place.page >= floor:
                # Consumers that were cut off by an outage of this feed may still resume.
                until_ms = now_ms + limits.ERASURE_GRACE_MS
                self.progress.save(feed, erasure, page=erasure.place.page, until_ms=until_ms)
                continue
            target = erasure.target
            for row in self.states.find(feed, [target.key]):
                if (row.page, row.slot) == target.own:
                    gone = Difference(Kind.ALIEN, row.bucket, row.key, row, None)
                    self.states.repair(feed, [gone])
            self.progress.begin(feed, erasure, Phase.WAITING, final=True)
        return bool(due)
