"""
What operators ask and want of chained feeds: how they are, pause, resume, shutdown, start, reset.

Each action is one conditional write of the relay; its runner finds it with its next write. What
would change nothing is refused.

A feed moves in two steps: its master yields to a copy, so that nobody gets a page number there any
more, and the copy, once it has every page, is promoted and goes on with the next number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.errors import (
    BrokenRelay,
    InvalidRelay,
    NotChained,
    NothingDone,
    NotWhole,
    Unavailable,
)
from tidings.core.model.cursors import Place, known
from tidings.core.model.feeds import check_known
from tidings.core.model.pages import filler, jump
from tidings.core.model.timestamps import from_ms
from tidings.core.replication import source_settings
from tidings.core.replication.replica import RELAY, Copy, Wanted, restarted, succeeded
from tidings.core.settings.profiles import possible, remember_lost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.followers.stores import Waker
    from tidings.core.log.reader import Reader
    from tidings.core.log.stores import Intake
    from tidings.core.model.pages import Page
    from tidings.core.replication.clusters import Member
    from tidings.core.replication.replica import Relay
    from tidings.core.replication.source import Source, Sources
    from tidings.core.replication.stores import Coordinator, RelayStore
    from tidings.core.settings.profiles import ProfileStore

MASTER = "master"  # the role of a local feed
BROKEN = "broken"  # the status of a chained feed whose document cannot be read
EVERYTHING, LATEST = "everything", "latest"
_ATTEMPTS_MAX = 8  # a relay writes twenty times a second at most, each time it has copied pages
Told = dict[str, Any]


class Action(Enum):
    PAUSE = "pause"
    RESUME = "resume"
    SHUTDOWN = "shutdown"
    START = "start"  # again, with what is saved
    RESET = "reset"  # begin anew
    YIELD = "yield"  # refuse producers: another feed goes on with the log
    PROMOTE = "promote"  # take producers from now on


YIELDED = "yielded"  # the status of a feed that producers have left
_FIELDS = {
    Action.RESET: frozenset({"to", "why"}),
    Action.YIELD: frozenset({"to"}),
    Action.PROMOTE: frozenset({"why"}),
}


@dataclass(frozen=True, slots=True)
class RelayControl:
    """
    *feeds* are all of the deployment, *sources* those that its settings chain. *intake* is where
    producers get page numbers. Without a *coordinator* no members are told.
    """

    store: RelayStore
    sources: Sources
    feeds: frozenset[str]
    reader: Reader
    intake: Intake
    waker: Waker
    page_ms: int
    profiles: ProfileStore
    coordinator: Coordinator | None = None

    def listed(self, feed: str) -> Told:
        """As `document`, for a list of many: of one that cannot be read, that it is so."""
        try:
            return self.document(feed)
        except BrokenRelay as error:
            source = self.sources[feed].url
            broken = {"feed": feed, "source": source, "role": "", "status": BROKEN}
            return {**broken, "error": str(error), **self._ends(feed)}

    def document(self, feed: str) -> Told:
        """
        Raises:
            InvalidFeed, UnknownFeed, BrokenRelay: see there.
        """
        check_known(feed, self.feeds)
        source = self.sources.get(feed)
        if source is None:
            return {"feed": feed, "source": "", **self._master_told(feed), **self._ends(feed)}
        relay, now = self.store.relay(feed), self.reader.clock()
        return {
            "feed": feed,
            "source": source.url,
            **_standing(relay),
            **(self._master_told(feed) if relay.wanted is Wanted.PROMOTED else {}),
            **_progress(relay, now),
            **_trouble(relay),
            **self._ends(feed),
            "members": self._members(source),
        }

    def act(self, feed: str, action: str, fields: Mapping[str, object]) -> Told:
        """
        Do *action*; how the feed is then.

        Raises:
            NotChained: the feed is local.
            InvalidRelay: no such action, or a field breaks its rule.
            NothingDone: it would change nothing.
            NotWhole: see `promoted`.
        """
        check_known(feed, self.feeds)
        source, wanted = self.sources.get(feed), _checked(action, fields)
        if source is None or (wanted is not Action.RESET and self._is_promoted(feed)):
            self._act_as_master(feed, wanted, fields)
            return self.document(feed)
        for _ in range(_ATTEMPTS_MAX):
            before = self.store.relay(feed)
            after = self._after(before, source, wanted, fields)
            write = self._promote if wanted is Action.PROMOTE else self.store.write
            if write(before, replace(after, changed_ms=self.reader.clock())):
                self.waker.ring(feed, RELAY)
                return self.document(feed)
        raise Unavailable(f"{feed}: its relay kept changing")

    def _promote(self, before: Relay, after: Relay) -> bool:
        """
        Store *after*. If the upstream may have more pages, the log jumps over all their numbers.

        Readers move here with cursors of those pages. What is lost is remembered first: a reader
        may come as soon as the page is there.
        """
        feed, now = after.feed, self.reader.clock()
        self.intake.yield_to(feed, "")  # to whomever, when it was a master before
        for lost in before.lost:
            remember_lost(self.profiles, feed, lost)
        if before.is_whole:
            return self.store.write(before, after)
        here = max(before.checkpoint, self.reader.log.head(feed))
        known = max(here, before.upstream_head)
        read_ms = before.master_read_ms or before.upstream_read_ms
        last = known + possible(known, now - read_ms)
        remember_lost(self.profiles, feed, (here + 1, last))
        page = jump(here + 1, last + 1, at_ms=now, expires_ms=now + self.page_ms)
        ended = replace(after, checkpoint=page.number, seconds=page.seconds, page_at_ms=now)
        return self.store.append(before, ended, [page])

    def _after(
        self, relay: Relay, source: Source, action: Action, fields: Mapping[str, object]
    ) -> Relay:
        if action is Action.YIELD:
            rule = f"is a copy of {source.url}: only a feed that producers post to can yield"
            raise InvalidRelay(rule, field="feed", value=relay.feed)
        if action is Action.PROMOTE:
            return promoted(relay, source, fields)
        if action is not Action.RESET:
            return changed(relay, action)
        here = max(relay.checkpoint, self.reader.log.head(relay.feed))
        return reset(relay, here, source.restart_offset, fields)

    def _master_told(self, feed: str) -> Told:
        successor = self.intake.taken(feed).successor
        if not successor:
            return {"role": MASTER, "status": MASTER}
        return {"role": MASTER, "status": YIELDED, "successor": successor}

    def _is_promoted(self, feed: str) -> bool:
        return self.store.relay(feed).wanted is Wanted.PROMOTED

    def _act_as_master(self, feed: str, action: Action, fields: Mapping[str, object]) -> None:
        """
        Raises:
            NotChained, NothingDone, InvalidRelay: see `act`.
            Unavailable: nobody knows whether it was done.
        """
        successor = self.intake.taken(feed).successor
        if action is Action.YIELD:
            to = _address(fields.get("to"))
            if successor == to:
                raise NothingDone(f"has yielded to {to}", field="feed", value=feed)
            self._yield(feed, to, marks_end=not successor)
        elif action is Action.PROMOTE and successor:
            _why(fields)
            self.intake.yield_to(feed, "")
        elif action is Action.PROMOTE:
            raise NothingDone("takes posts already", field="feed", value=feed)
        else:
            raise NotChained("is not chained: nothing is copied", field="feed", value=feed)

    def _yield(self, feed: str, to: str, *, marks_end: bool) -> None:
        """Refuse producers. An empty page *marks_end*: it wakes the copies, which then know it."""
        with self.reader.log.together():
            number = self.reader.log.take(feed) if marks_end else 0
            self.intake.yield_to(feed, to)
            if number:
                now = self.reader.clock()
                self.reader.log.put(feed, filler(number, at_ms=now, expires_ms=now + self.page_ms))

    def _ends(self, feed: str) -> Told:
        """The first and the last page of the log, as those who read it see them."""
        reader = self.reader
        floor, head = reader.trim.floor(feed), reader.log.head(feed)
        first = reader.log.read(feed, floor - 1, 1)
        return {
            "floor": floor,
            "head": head,
            "min": _end_told(first[0] if first else None, 0),
            "max": _end_told(reader.at(feed, head)),
        }

    def _members(self, source: Source) -> list[Told] | None:
        """None where nobody can tell."""
        if self.coordinator is None or not source.cluster:
            return []
        try:
            members = self.coordinator.members(source.cluster)
        except Unavailable:
            return None
        return [_member_told(member, self.reader.clock()) for member in members]


def changed(relay: Relay, action: Action) -> Relay:
    """
    *relay* as its operator wants it.

    Raises:
        NothingDone: it is so already.
    """
    wanted = relay.wanted
    match action:
        case Action.PAUSE if wanted is Wanted.RUN:
            return replace(relay, wanted=Wanted.PAUSE)
        case Action.RESUME if wanted is Wanted.PAUSE:
            return restarted(replace(relay, wanted=Wanted.RUN))
        case Action.SHUTDOWN if wanted is not Wanted.SHUTDOWN:
            return replace(relay, wanted=Wanted.SHUTDOWN)
        case Action.START if wanted is Wanted.SHUTDOWN or relay.stands or relay.failures:
            return restarted(replace(relay, wanted=Wanted.RUN))
    rule = f"is {relay.status}: there is nothing to {action.value}"
    raise NothingDone(rule, field="feed", value=relay.feed)


def promoted(relay: Relay, source: Source, fields: Mapping[str, object]) -> Relay:
    """
    *relay* of a feed that copies nothing any more.

    Raises:
        NotWhole: its upstream may have more than is here, and nobody said why that is given up.
        InvalidRelay: a field breaks its rule.
    """
    lacks = ""
    if not source.selection.is_everything:
        lacks = "copies a part of its upstream"
    elif relay.copy is not None:
        lacks = "is still copying the state of its upstream"
    elif not relay.is_whole:
        lacks = (
            f"may lack pages: {relay.upstream or source.url} has not yielded, or not all is here"
        )
    if relay.copy is not None or (lacks and "why" not in fields):
        raise NotWhole(lacks, field="feed", value=relay.feed)
    why = _why(fields) if "why" in fields else relay.why
    free = replace(relay, owner="", lease_until_ms=0, why=why)
    return replace(succeeded(free), wanted=Wanted.PROMOTED)


def reset(relay: Relay, here: int, restart_offset: int, fields: Mapping[str, object]) -> Relay:
    """
    *relay* as it begins anew: with the upstream's state, with its next page, or behind an event.

    Pages up to *here* were told to readers and are never written again, so they must lie below
    what comes next.

    Raises:
        InvalidRelay: a field breaks its rule.
    """
    why = _why(fields)
    copy = _wanted_copy(fields.get("to"), here, restart_offset)
    wanted = Wanted.RUN if relay.wanted is Wanted.PROMOTED else relay.wanted
    anew = replace(relay, wanted=wanted, checkpoint=here, copy=copy, why=why)
    return restarted(anew if here == relay.checkpoint else replace(anew, seconds=0))


def _why(fields: Mapping[str, object]) -> str:
    why = fields.get("why")
    if not isinstance(why, str) or not why.strip() or len(why) > limits.WHY_CHARS_MAX:
        rule = f"must say why in 1 to {limits.WHY_CHARS_MAX} characters; it is kept"
        raise InvalidRelay(rule, field="why", value=why)
    return why.strip()


def _address(to: object) -> str:
    try:
        return source_settings.feed_url(to, "to")
    except source_settings.WrongSource:
        raise InvalidRelay(source_settings.URL_RULE, field="to", value=to) from None


def _wanted_copy(to: object, here: int, restart_offset: int) -> Copy:
    if to == EVERYTHING:
        return Copy()
    if to == LATEST:
        return Copy(empty=True)
    place = _place(to)
    page = position.handled(place) or 0
    if here and page <= here:
        rule = f"must lie behind page {here}, up to which pages are here: none is written twice"
        raise InvalidRelay(rule, field="to", value=to)
    first = max(here + 1 if here else 0, page - restart_offset)
    return Copy(first, place.seconds if first == place.page else 0, empty=True)


def _place(to: object) -> Place:
    place = known(to)
    if not isinstance(place, Place):
        rule = f"must be {EVERYTHING}, {LATEST} or the id of an event"
        raise InvalidRelay(rule, field="to", value=to)
    return place


def _checked(action: str, fields: Mapping[str, object]) -> Action:
    """
    Raises:
        InvalidRelay: no such action, or one of *fields* is not known to it.
    """
    known_action = next((each for each in Action if each.value == action), None)
    if known_action is None:
        rule = f"must be one of {', '.join(each.value for each in Action)}"
        raise InvalidRelay(rule, field="action", value=action)
    for name in sorted(set(fields) - _FIELDS.get(known_action, frozenset())):
        raise InvalidRelay(f"is no field of {action}", field=name, value=fields[name])
    return known_action


def _standing(relay: Relay) -> Told:
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


def _progress(relay: Relay, now_ms: int) -> Told:
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


def _trouble(relay: Relay) -> Told:
    copy = relay.copy
    return {
        "failures": relay.failures,
        "next_attempt": from_ms(relay.attempt_ms) if relay.attempt_ms else None,
        "error": relay.error,
        "why": relay.why,
        "copy": None if copy is None else _copy_told(copy),
    }


def _copy_told(copy: Copy) -> Told:
    return {
        "buckets_done": copy.bucket,
        "buckets": limits.BUCKETS,
        "behind_page": None if copy.page < 0 else copy.page,
        "empty": copy.empty,
    }


def _end_told(page: Page | None, slot: int | None = None) -> Told | None:
    """A page as an end of the log; its own end as cursor, or the id of what is in *slot*."""
    if page is None:
        return None
    place = page.end if slot is None else replace(page.end, slot=slot)
    return {"page": page.number, "cursor": place.encode(), "time": from_ms(page.at_ms)}


def _member_told(member: Member, now_ms: int) -> Told:
    return {
        "address": member.address,
        "feed": member.feed,
        "role": member.role.value,
        "page": member.checkpoint,
        "heard_ms_ago": max(0, now_ms - member.heard_ms),
        "gone": now_ms - member.heard_ms > limits.MEMBER_MS,
    }


def _ago(ms: int, now_ms: int) -> int | None:
    return max(0, now_ms - ms) if ms else None
