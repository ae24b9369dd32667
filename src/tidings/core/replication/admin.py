"""Show, pause, start, reset, yield, promote and monitor chained feeds for an operator.

Each action is one conditional write of the relay document, which has the progress of a chained
feed. A run of the relay notices the change at its next write. An action that would change nothing
is refused.

A feed moves to another deployment in two steps. First the master, to which producers post, yields
to a copy, and from then on assigns no page numbers. Once the copy has every page, an operator
promotes the copy, which continues with the next page number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.errors import (
    BrokenRelay,
    IncompleteCopy,
    InvalidRelay,
    NotChained,
    NothingDone,
    Unavailable,
)
from tidings.core.log.due import NEXT_SWEEP
from tidings.core.model.cursors import Place, parse_cursor
from tidings.core.model.feeds import public_name
from tidings.core.model.pages import filler, jump
from tidings.core.model.timestamps import from_ms, from_ms_if_set
from tidings.core.records import until_saved
from tidings.core.replication.relay import RELAY, Copy, Wanted, clear_failure, restart
from tidings.core.replication.source import URL_RULE, WrongSource, parse_feed_url
from tidings.core.settings.profiles import possible, remember_lost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.effects import Runtime
    from tidings.core.followers.leases import Waker
    from tidings.core.log.reader import Reader
    from tidings.core.log.stores import LogStore
    from tidings.core.model.feeds import FeedNames
    from tidings.core.model.pages import Page
    from tidings.core.replication.election import Coordinator, Member
    from tidings.core.replication.relay import Relay, RelayStore
    from tidings.core.replication.source import Source, Sources
    from tidings.core.settings.profiles import ProfileStore


MASTER = "master"  # the role of a local feed
BROKEN = "broken"  # the status of a chained feed with an unreadable document
EVERYTHING, LATEST = "everything", "latest"
Document = dict[str, Any]


class Action(Enum):
    PAUSE = "pause"
    RESUME = "resume"
    SHUTDOWN = "shutdown"
    START = "start"  # copy again, from the checkpoint
    RESET = "reset"  # copy again, from another position
    YIELD = "yield"  # refuse producers, because another feed continues the log
    PROMOTE = "promote"  # accept producers from now on


YIELDED = "yielded"  # the status of a master that another feed continues


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayReporter:
    """The status of feeds for an operator.

    *feed_names* are all feeds of the deployment, and *sources* the sources of its chained feeds.
    Without a *coordinator*, the status of a feed does not list the members of its cluster.
    """

    store: RelayStore
    sources: Sources
    feed_names: FeedNames
    reader: Reader
    coordinator: Coordinator | None = None

    def summary(self, feed: str) -> Document:
        """Return `document(feed)`; if the relay cannot be read, a document with status `BROKEN`."""
        try:
            return self.document(feed)
        except BrokenRelay as error:
            source = self.sources[feed].url
            broken = {"feed": public_name(feed), "source": source, "role": "", "status": BROKEN}
            return {**broken, "error": str(error), **self._ends(feed)}

    def document(self, feed: str) -> Document:
        """Return the status of *feed*.

        Raises:
            InvalidFeed, UnknownFeed: see `FeedNames.check`.
            BrokenRelay: the document of the relay cannot be read.
        """
        self.feed_names.check(feed)
        source = self.sources.get(feed)
        if source is None:
            shown = public_name(feed)
            return {"feed": shown, "source": "", **self._master_document(feed), **self._ends(feed)}
        relay, now = self.store.relay(feed), self.reader.clock()
        return {
            "feed": public_name(feed),
            "source": source.url,
            **_status(relay),
            **(self._master_document(feed) if relay.wanted is Wanted.PROMOTED else {}),
            **_progress(relay, now),
            **_errors(relay),
            **self._ends(feed),
            "members": self._members(source),
        }

    def _master_document(self, feed: str) -> Document:
        successor = self.reader.log.log_counter(feed).successor
        if not successor:
            return {"role": MASTER, "status": MASTER}
        return {"role": MASTER, "status": YIELDED, "successor": successor}

    def _ends(self, feed: str) -> Document:
        """Return the first and the last page of the log, as readers see them."""
        reader = self.reader
        floor, head = reader.log.floor(feed), reader.log.head(feed)
        first = reader.log.read(feed, floor - 1, 1)
        return {
            "floor": floor,
            "head": head,
            "min": _end_document(first[0] if first else None, 0),
            "max": _end_document(reader.at(feed, head)),
        }

    def _members(self, source: Source) -> list[Document] | None:
        """Return the members of the feed's cluster, or None if the coordinator does not answer."""
        if self.coordinator is None or not source.cluster:
            return []
        try:
            members = self.coordinator.members(source.cluster)
        except Unavailable:
            return None
        return [_member_document(member, self.reader.clock()) for member in members]


@dataclass(frozen=True, slots=True)
class RelayControl:
    """The actions of an operator on feeds."""

    reporter: RelayReporter
    waker: Waker
    profiles: ProfileStore
    runtime: Runtime

    @property
    def log(self) -> LogStore:
        return self.reporter.reader.log

    def act(self, feed: str, action: Action, fields: Mapping[str, object]) -> Document:
        """Do *action* and return the new status of *feed*.

        Raises:
            NotChained: the feed is local.
            InvalidRelay: a field breaks its rule.
            NothingDone: the action would change nothing.
            IncompleteCopy: see `promote_relay`.
        """
        self.reporter.feed_names.check(feed)
        source = self.reporter.sources.get(feed)
        if source is None or (action is not Action.RESET and self._is_promoted(feed)):
            self._act_as_master(feed, action, fields)
            return self.reporter.document(feed)

        def attempt() -> Document | None:
            before = self.reporter.store.relay(feed)
            after = self._after(before, source, action, fields)
            write = self._promote if action is Action.PROMOTE else self.reporter.store.write
            changed = replace(after, changed_ms=self.runtime.clock())
            if not self.log.together(partial(write, before, changed)):
                return None
            self.waker.wake(feed, RELAY)
            return self.reporter.document(feed)

        return until_saved(attempt, f"{feed}: the relay")

    def _promote(self, before: Relay, after: Relay) -> bool:
        """Store *after*. If the upstream may have more pages, skip the numbers of these pages.

        These pages are lost here, but readers may have received them from the upstream. Therefore
        first record the range of the lost pages, by which the cursors of these readers are
        recognized, and then write a page with the number after this range.
        """
        feed, now = after.feed, self.runtime.clock()
        self.log.yield_to(feed, "")  # the feed may have yielded when it was a master before
        for lost in before.lost:
            remember_lost(self.profiles, feed, lost)
        if before.is_complete:
            return self.reporter.store.write(before, after)
        here = max(before.checkpoint, self.log.head(feed))
        known = max(here, before.upstream_head)
        read_ms = before.master_read_ms or before.upstream_read_ms
        last = known + possible(known, now - read_ms)
        remember_lost(self.profiles, feed, (here + 1, last))
        page = jump(here + 1, last + 1, at_ms=now, expires_ms=now + self.runtime.page_ms)
        ended = replace(after, checkpoint=page.number, seconds=page.seconds, page_at_ms=now)
        return self.reporter.store.append(before, ended, [page])

    def _after(
        self, relay: Relay, source: Source, action: Action, fields: Mapping[str, object]
    ) -> Relay:
        if action is Action.YIELD:
            rule = f"is a copy of {source.url}: only a feed that producers post to can yield"
            raise InvalidRelay(rule, field="feed", value=relay.feed)
        if action is Action.PROMOTE:
            return promote_relay(relay, source, fields)
        if action is not Action.RESET:
            return apply_action(relay, action)
        here = max(relay.checkpoint, self.log.head(relay.feed))
        return reset(relay, here, source.restart_offset, fields)

    def _is_promoted(self, feed: str) -> bool:
        return self.reporter.store.relay(feed).wanted is Wanted.PROMOTED

    def _act_as_master(self, feed: str, action: Action, fields: Mapping[str, object]) -> None:
        """Do *action* on a local feed."""
        successor = self.log.log_counter(feed).successor
        if action is Action.YIELD:
            to = _parse_address(fields.get("to"))
            if successor == to:
                raise NothingDone(f"has yielded to {to}", field="feed", value=public_name(feed))
            self._yield(feed, to, marks_end=not successor)
        elif action is Action.PROMOTE and successor:
            _parse_why(fields)
            self.log.yield_to(feed, "")
        elif action is Action.PROMOTE:
            raise NothingDone("accepts posts already", field="feed", value=public_name(feed))
        else:
            rule = "is not chained: nothing is copied"
            raise NotChained(rule, field="feed", value=public_name(feed))

    def _yield(self, feed: str, to: str, *, marks_end: bool) -> None:
        """Refuse producers. With *marks_end*, append an empty page, which notifies the copies."""

        def write() -> None:
            number = self.log.take(feed) if marks_end else 0
            self.log.yield_to(feed, to)
            if number:
                now = self.runtime.clock()
                self.log.put(feed, filler(number, at_ms=now, expires_ms=now + self.runtime.page_ms))

        self.log.together(write)


def apply_action(relay: Relay, action: Action) -> Relay:
    """Return *relay* after *action*.

    Raises:
        NothingDone: the relay is already in the requested state.
    """
    wanted = relay.wanted
    match action:
        case Action.PAUSE if wanted is Wanted.RUN:
            return replace(relay, wanted=Wanted.PAUSE)
        case Action.RESUME if wanted is Wanted.PAUSE:
            return restart(replace(relay, wanted=Wanted.RUN))
        case Action.SHUTDOWN if wanted is not Wanted.SHUTDOWN:
            return replace(relay, wanted=Wanted.SHUTDOWN)
        case Action.START if wanted is Wanted.SHUTDOWN or relay.is_blocked or relay.failures:
            return restart(replace(relay, wanted=Wanted.RUN))
    rule = f"is {relay.status}: there is nothing to {action.value}"
    raise NothingDone(rule, field="feed", value=relay.feed)


def promote_relay(relay: Relay, source: Source, fields: Mapping[str, object]) -> Relay:
    """Return *relay* changed for a feed that becomes a master.

    Raises:
        IncompleteCopy: the upstream may have more pages, and no reason was given for losing them.
        InvalidRelay: a field breaks its rule.
    """
    lacks = ""
    if not source.selection.is_everything:
        lacks = "copies a part of its upstream"
    elif relay.copy is not None:
        lacks = "is still copying the state of its upstream"
    elif not relay.is_complete:
        lacks = f"may lack pages: {relay.upstream or source.url} has not yielded, or has more pages"
    if relay.copy is not None or (lacks and "why" not in fields):
        raise IncompleteCopy(lacks, field="feed", value=relay.feed)
    why = _parse_why(fields) if "why" in fields else relay.why
    free = replace(relay, owner="", lease_until_ms=0, why=why)
    return replace(clear_failure(free), wanted=Wanted.PROMOTED)


def reset(relay: Relay, here: int, restart_offset: int, fields: Mapping[str, object]) -> Relay:
    """Return *relay* reset to the upstream's state, to the upstream's next page, or to an event.

    The local log already has page numbers up to *here*, and no number is used twice. Therefore the
    next page that is copied must have a higher number.

    Raises:
        InvalidRelay: a field breaks its rule.
    """
    why = _parse_why(fields)
    copy = _parse_copy(fields.get("to"), here, restart_offset)
    wanted = Wanted.RUN if relay.wanted is Wanted.PROMOTED else relay.wanted
    after = replace(relay, wanted=wanted, checkpoint=here, copy=copy, why=why)
    return restart(after if here == relay.checkpoint else replace(after, seconds=0))


def _parse_why(fields: Mapping[str, object]) -> str:
    why = fields.get("why")
    if not isinstance(why, str) or not why.strip() or len(why) > limits.WHY_CHARS_MAX:
        rule = f"must give the reason in 1 to {limits.WHY_CHARS_MAX} characters; it is stored"
        raise InvalidRelay(rule, field="why", value=why)
    return why.strip()


def _parse_address(to: object) -> str:
    try:
        return parse_feed_url(to, "to")
    except WrongSource:
        raise InvalidRelay(URL_RULE, field="to", value=to) from None


def _parse_copy(to: object, here: int, restart_offset: int) -> Copy:
    if to == EVERYTHING:
        return Copy()
    if to == LATEST:
        return Copy(empty=True)
    place = parse_cursor(to)
    if not isinstance(place, Place):
        rule = f"must be {EVERYTHING}, {LATEST} or the id of an event"
        raise InvalidRelay(rule, field="to", value=to)
    page = position.last_unneeded_page(place) or 0
    if here and page <= here:
        rule = f"must be after page {here}, the last local page: no page number is used twice"
        raise InvalidRelay(rule, field="to", value=to)
    first = max(here + 1 if here else 0, page - restart_offset)
    return Copy(first, place.seconds if first == place.page else 0, empty=True)


def _status(relay: Relay) -> Document:
    return {
        "status": relay.status,
        "condition": relay.condition.value,
        "role": relay.role.value,
        "term": relay.term,
        "transitions": relay.transitions,
        "upstream": relay.upstream,
        "master": relay.master,
        "via": list(relay.via),
        "cursor": relay.place.encode(),
        "page": relay.checkpoint,
        "low_watermark": relay.low_watermark,
    }


def _progress(relay: Relay, now_ms: int) -> Document:
    lag_pages = max(0, relay.upstream_head - relay.checkpoint)
    return {
        **asdict(relay.counts),
        "lag_pages": lag_pages,
        "lag_ms": _ago(relay.page_at_ms, now_ms) if lag_pages else 0,
        "last_page_ms_ago": _ago(relay.page_at_ms, now_ms),
        "upstream_read_ms_ago": _ago(relay.upstream_read_ms, now_ms),
        "master_read_ms_ago": _ago(relay.master_read_ms, now_ms),
        "compared_page": relay.compared_page,
        "compared_ms_ago": _ago(relay.compared_ms, now_ms),
        "buckets_mended": relay.mended,
    }


def _errors(relay: Relay) -> Document:
    copy = relay.copy
    return {
        "failures": relay.failures,
        "next_attempt": from_ms_if_set(relay.attempt_ms),
        "error": relay.error,
        "why": relay.why,
        "copy": None if copy is None else _copy_document(copy),
    }


def _copy_document(copy: Copy) -> Document:
    return {
        "buckets_done": copy.bucket,
        "buckets": limits.BUCKETS,
        "behind_page": None if copy.page < 0 else copy.page,
        "empty": copy.empty,
    }


def _end_document(page: Page | None, slot: int | None = None) -> Document | None:
    """Describe *page*, the first or last of the log; the cursor is at *slot* or the page's end."""
    if page is None:
        return None
    place = page.end if slot is None else replace(page.end, slot=slot)
    return {"page": page.number, "cursor": place.encode(), "time": from_ms(page.at_ms)}


def _member_document(member: Member, now_ms: int) -> Document:
    return {
        "address": member.address,
        "feed": member.feed,
        "role": member.role.value,
        "page": member.checkpoint,
        "heard_ms_ago": max(0, now_ms - member.heard_ms),
        "gone": not member.is_alive(now_ms),
    }


def _ago(ms: int, now_ms: int) -> int | None:
    return max(0, now_ms - ms) if ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMonitor:
    """A monitor that wakes each relay once a minute and reports its lag, even if it is idle."""

    store: RelayStore
    sources: Sources
    waker: Waker
    runtime: Runtime

    def run(self, feed: str) -> int | None:
        """Wake the relay of *feed*; return the time of the next visit, None if it has no relay."""
        if feed not in self.sources:
            return None
        self._run(feed)
        return NEXT_SWEEP

    def _run(self, feed: str) -> None:
        """Wake the relay; count its lag unless an operator has stopped the relay."""
        self.waker.wake(feed, RELAY)
        try:
            relay = self.store.relay(feed)
        except BrokenRelay:  # the run of the relay reports the error; continue with other feeds
            self.runtime.count("RelaysStanding", 1)
            return
        if relay.version == 0 or relay.wanted is not Wanted.RUN:
            return
        self.runtime.count("RelayLag", max(0, relay.upstream_head - relay.checkpoint))
        self.runtime.count("RelaysStanding", int(relay.is_blocked))
        self.runtime.count("RelayUpstreamAge", self._age_s(relay.upstream_read_ms))
        self.runtime.count("RelayMasterAge", self._age_s(relay.master_read_ms))

    def _age_s(self, read_ms: int) -> int:
        """Return the seconds since *read_ms*, or 0 if *read_ms* is 0 because nothing was read."""
        return max(0, self.runtime.clock() - read_ms) // 1000 if read_ms else 0
