"""
Streaming: a catch-up that never ends, as text: blocks of SSE, or lines of NDJSON.

A stream is a state machine without a socket: `take` and `next` give what to send now, from
memory or from the stores. Whoever serves it decides how long to wait when there is nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.permissions import READS
from tidings.core.auth.rate_limit import ReadCharge, free
from tidings.core.catchup import links
from tidings.core.catchup.batches import Written
from tidings.core.catchup.matching import page_part
from tidings.core.catchup.progress import Progress
from tidings.core.model import cursors, envelopes, feeds, filters
from tidings.core.settings.feed import OPLOG, is_let_go
from tidings.core.settings.revocations import FOR_GOOD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidings.core.auth.guard import Credential, Guard
    from tidings.core.auth.rate_limit import Charges
    from tidings.core.auth.stream_limit import Hold, Holding
    from tidings.core.catchup.batches import Part
    from tidings.core.catchup.catchup import CatchUp
    from tidings.core.catchup.tail_cache import Tail
    from tidings.core.model.envelopes import Encode
    from tidings.core.model.filters import Filter
    from tidings.core.settings.revocations import Admission
    from tidings.core.settings.stores import Profiles
    from tidings.core.state.stores import StateStore

_NO_FILTER: Mapping[str, str | None] = {}

HEARTBEAT = ":\n"
EMPTY_LINE = "\n"  # the heartbeat of lines, which whoever reads NDJSON leaves out
# A field of the first event of a stream: a browser waits so long before it resumes, instead of
# three to five seconds.
RESUME = f"retry: {limits.STREAM_RESUME_MS}\n"


@dataclass(frozen=True, slots=True)
class Chunk:
    """
    *at_frontier*: nothing more for now. *wait_ms*: nothing is read before that is over. *progress*
    is behind *parts*.
    """

    parts: Sequence[Part]
    at_frontier: bool
    progress: Progress
    wait_ms: int = 0

    def pieces(self) -> Iterator[str]:
        """The text, cut between two blocks; each piece is made when it is asked for."""
        piece: list[str] = []
        size = 0
        for part in self.parts:
            text = part.sse()
            if text:
                piece.append(text)
                size += len(text)
            if size >= limits.PIECE_CHARS:
                yield "".join(piece)
                piece, size = [], 0
        if piece:
            yield "".join(piece)

    @property
    def text(self) -> str:
        return "".join(self.pieces())


@dataclass(slots=True)
class Stream:
    """
    One consumer's way through *feed*.

    *template* is the one of `catchup.links` when it was opened: no stream lives long enough to miss
    it. *admission*, of *since_ms*, may end meanwhile, which is in the feed's profile. *hold* is let
    go by `close`. *charge* is for what is read. *write* is for who asked for traces, for another
    format or for *lines*; None: parts write themselves.
    *as_oplog*: the feed is for clients of oplog.
    """

    catch_up: CatchUp
    feed: str
    filter: Filter
    progress: Progress
    template: str = ""
    admission: Admission = FOR_GOOD
    profiles: Profiles | None = None
    since_ms: int = 0
    hold: Hold | None = None
    charge: ReadCharge = field(default_factory=ReadCharge)
    write: Encode | None = None
    lines: bool = False
    as_oplog: bool = False

    def has_ended(self) -> bool:
        """Whether its consumer may not hear more: its key was revoked, or has expired."""
        if self.profiles is None or not self.admission.may_end:
            return False
        profile = self.profiles.profile(self.feed)
        return is_let_go(profile, self.admission, self.since_ms, self.catch_up.reader.clock())

    def close(self) -> None:
        """Nobody is served any more."""
        if self.hold:
            self.hold.let_go()

    def take(self, tail: Tail) -> Chunk | None:
        """What follows, from memory alone; None where the stores have to be read."""
        if self.filter.leave or not self.progress.in_step or not tail.reaches(self.progress.page):
            return None
        held = tail.behind(self.progress.page)
        if held:
            last = held[-1].page
            self.progress = Progress(last.number, seconds=last.seconds)
        if self.filter.is_everything:
            parts: Sequence[Part] = [each.part for each in held]
        else:
            parts = [page_part(each.page, self.filter) for each in held]
        return Chunk(self._told(parts), at_frontier=True, progress=self.progress)

    def next(self) -> Chunk:
        """What follows, from the stores; nothing while the rate of its key is exceeded."""
        wait_ms = self.charge.wait_ms()
        if wait_ms:
            return Chunk((), at_frontier=False, progress=self.progress, wait_ms=wait_ms)
        step = self.catch_up.step(self.feed, self.progress, self.filter)
        self.progress = step.progress
        self.charge.add(step.size)
        return Chunk(self._told(step.parts), step.at_frontier, step.progress)

    def silence(self, told: Progress, now: Progress) -> str:
        """
        What its consumer is sent who has heard nothing from *told* to *now*: where it stands.

        An empty line among lines. A comment where that is no news, where `reset` or `live` is due
        first, and for clients of oplog, who take a block without an event for a broken stream.
        """
        if self.lines:
            return EMPTY_LINE
        announced = now.copying or not now.announces
        if self.as_oplog or now.resets or not announced or now.cursor == told.cursor:
            return HEARTBEAT
        return f"id: {now.cursor}\n\n"

    def _told(self, parts: Sequence[Part]) -> Sequence[Part]:
        linked = links.with_refs(parts, self.template)
        write = self.write
        return linked if write is None else [Written(part, write) for part in linked]


def _as_it_is(states: StateStore) -> StateStore:
    return states


@dataclass(frozen=True, slots=True)
class Streamer:
    """
    *for_copy* may prepare the state for the one who is about to copy it. *charges* are for what is
    read.
    """

    catch_up: CatchUp
    feeds: frozenset[str]
    guard: Guard
    holding: Holding
    for_copy: Callable[[StateStore], StateStore] = _as_it_is
    charges: Charges = free

    def open(
        self,
        feed: str,
        cursor: str,
        query: Mapping[str, str | None] = _NO_FILTER,
        given: Credential | None = None,
        *,
        lines: bool = False,
    ) -> Stream:
        """
        The stream of *feed* behind *cursor*, filtered as *query* says (`filters.from_query`).

        With `trace=true` in *query* events have their traces; `format` is one of
        `envelopes.FORMATS`. *lines*: it is written as NDJSON.

        Raises:
            InvalidFeed, UnknownFeed, WrongPassword, NoPasswordSet, WrongKey, OutsideKey,
                TooManyRequests, InvalidCursor, InvalidFilter, LeaveNotKept: see the rule in the
                error.
        """
        name = feeds.check_known(feed, self.feeds)
        since_ms = self.catch_up.reader.clock()
        allowed = READS.admit(self.guard, name, given)
        at, requested = cursors.parse(cursor), filters.from_query(query)
        traced = filters.switch(query.get("trace"), "trace")
        form, clock = envelopes.check_format(query.get("format")), self.catch_up.reader.clock
        write = envelopes.writer(form, name, clock, lines=lines, traced=traced)
        wanted = allowed.narrowed(requested, leave=query.get("leave") == "true")
        self.guard.check_leave(name, wanted)
        profiles = self.guard.profiles
        profile = profiles.profile(name)
        progress = self.catch_up.start(name, at)
        catch_up = self.catch_up
        if progress.copying:
            catch_up = replace(catch_up, states=self.for_copy(catch_up.states))
        about = wanted, progress, profile.object_url, allowed.admission, profiles, since_ms
        hold, charge = self.holding.take(name, allowed), self.charges(name, allowed.admission)
        oplog = profile.compat == OPLOG
        return Stream(catch_up, name, *about, hold, charge, write, lines, oplog)
