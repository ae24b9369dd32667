"""
The follower `push`: sends each page to the connections that want it.

It is the only one that makes subscriptions live and that sends to live ones; its lease makes
it one at a time. Who wants to join or leave posts a change to the inbox and rings. A joining
connection first gets what lies between its replay's last page and the checkpoint, from the
log; so the hand-over has neither gap nor reorder.

Where some want to hear of leaves it stays behind the follower `state`, which finds out what was
left. That somebody does is filed under "everything", as the watch of nobody: it is read anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup.links import with_ref
from tidings.core.catchup.matching import page_events
from tidings.core.followers.follower import PUSH
from tidings.core.model.events import pack, reply, to_json
from tidings.core.model.filters import ALL_KEY, LEAVERS
from tidings.core.settings.feed import endings_of
from tidings.core.settings.resources import declared
from tidings.core.triton.items import items_of
from tidings.core.websocket import fanout
from tidings.core.websocket.connections import Change, Connection, Subscription
from tidings.core.websocket.session import Event, State, after

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidings.core.effects import Spread
    from tidings.core.log.reader import Reader
    from tidings.core.model.filters import Filter
    from tidings.core.model.pages import Page
    from tidings.core.settings.feed import Profile
    from tidings.core.settings.revocations import Endings
    from tidings.core.settings.stores import Profiles
    from tidings.core.state.removed_parents import Left
    from tidings.core.state.removed_parents_reader import RemovedParentsReader
    from tidings.core.websocket.send import Delivery
    from tidings.core.websocket.stores import Inbox, SubscriptionStore

_SOMEBODY = Subscription("", LEAVERS, since=0)  # the watch of nobody: somebody wants leaves


@dataclass(slots=True)
class Pusher:
    inbox: Inbox
    watches: SubscriptionStore
    delivery: Delivery
    reader: Reader
    spread: Spread
    departures: RemovedParentsReader
    profiles: Profiles
    chained: Collection[str] = ()
    _moments_sent: dict[str, int] = field(default_factory=dict)
    _ended: dict[str, frozenset[str]] = field(default_factory=dict)
    _crowded: dict[str, int] = field(default_factory=dict)  # until when, by the time of pages

    @property
    def name(self) -> str:
        return PUSH

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """
        Apply the changes of subscriptions that wait in the inbox; whether some are left.

        Side by side, and so many that a turn ends in time however many clients come at once.
        """
        waiting = {
            change.connection_id: change
            for change in self.inbox.list(feed)
            if not (change.joins and self._is_early(feed, change, checkpoint))
        }

        def apply(connection_id: str) -> None:
            change = waiting[connection_id]
            if change.joins:
                self._join(feed, change, checkpoint)
            else:
                self._leave(feed, change)
            self.inbox.done(feed, change)

        self.spread(apply, list(waiting)[: limits.CHANGES_MAX])
        return len(waiting) > limits.CHANGES_MAX

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        index = self._index(feed, pages[-1].at_ms)
        leave = any(watch.filter.leave for watch in index.find(ALL_KEY))
        settled = self._settled(feed, pages) if leave else pages
        if not settled:
            return 0
        lefts = self.departures.left(feed, settled) if leave else None
        profile = self.profiles.profile(feed)
        resources = declared(profile.resources)
        plan = fanout.plan(settled, index, lefts, profile.object_url, resources)
        self._let_go_ended(feed, index, plan, endings_of(profile), pages[-1].at_ms)
        self._send(feed, settled[: plan.pages], index, plan)
        return plan.pages

    def _index(self, feed: str, at_ms: int) -> fanout.Index:
        """Where they are few they are read at once: most feeds, and each that nobody follows."""
        if at_ms >= self._crowded.get(feed, 0):
            few = self.watches.few(feed, limits.FEW_WATCHES)
            if few is not None:
                return fanout.Index.of_few(few)
            self._crowded[feed] = at_ms + limits.CROWDED_MS
        return fanout.Index.of(partial(self.watches.find, feed), partial(self.watches.all, feed))

    def _let_go_ended(
        self, feed: str, index: fanout.Index, plan: fanout.Plan, endings: Endings, at_ms: int
    ) -> None:
        """
        Those whose key has ended hear no operation that was committed since, at *at_ms*.

        Whoever is about to hear something is looked at, and after a new ending everybody, once.
        """
        news = endings.keys() - self._ended.get(feed, frozenset())
        self._ended[feed] = frozenset(endings)
        watches = index.everybody() if news else list(plan.watches.values())
        ended = [each for each in watches if each.admission.has_ended(endings, at_ms)]
        for watch in ended:
            plan.wanted.pop(watch.connection_id, None)
            plan.watches.pop(watch.connection_id, None)
        self.spread(self.delivery.end, [watch.connection_id for watch in ended])

    def _is_early(self, feed: str, change: Change, checkpoint: int) -> bool:
        """Whether what lies before *checkpoint* is not settled; the same bell says when it is."""
        waits = change.filter.leave and self._keeps(feed)
        return waits and self.departures.until(feed) < checkpoint

    def _keeps(self, feed: str) -> bool:
        return self.profiles.profile(feed).leave

    def moved(self, feed: str) -> None:
        """Nobody follows."""

    def lost(self, feed: str) -> bool:
        """
        The log of a *chained* feed goes on behind a copy: who is connected resumes from its cursor.

        Any other one keeps what was not pushed, so that it is a mistake.
        """
        if feed not in self.chained:
            return False
        watches = [watch for watch in self.watches.all(feed) if watch != _SOMEBODY]
        self.spread(self.delivery.cut, [watch.connection_id for watch in watches])
        return True

    def _settled(self, feed: str, pages: Sequence[Page]) -> Sequence[Page]:
        """
        Those whose departures are settled: the follower `state` rings for the others.

        It does so while the feed keeps departures. Else none will come, so none is waited for.
        """
        if not self._keeps(feed):
            return pages
        until = self.departures.until(feed)
        return [page for page in pages if page.number <= until]

    def _send(
        self, feed: str, pages: Sequence[Page], index: fanout.Index, plan: fanout.Plan
    ) -> None:
        messages = {connection_id: batch for ids, batch in plan.messages() for connection_id in ids}
        if self._time_to_tell(feed, pages):
            self._forget_leavers(feed, index.everybody())
            moved = list(pack((), plan.cursor))
            for watch in filter(_minds_cursors, index.everybody()):
                if watch.connection_id not in messages and watch.since < pages[-1].number:
                    messages[watch.connection_id] = moved
                    plan.watches[watch.connection_id] = watch
        self._deliver(feed, messages, plan.watches)

    def _deliver(
        self, feed: str, messages: dict[str, list[str]], watches: dict[str, Subscription]
    ) -> None:
        def task(connection_id: str) -> None:
            if not self.delivery.send(connection_id, messages[connection_id]):
                self.watches.remove(feed, watches[connection_id])

        self.spread(task, list(messages))

    def _forget_leavers(self, feed: str, everybody: Sequence[Subscription]) -> None:
        """Where the last who wanted leaves is gone, nobody has to be waited for."""
        if [watch for watch in everybody if watch.filter.leave] == [_SOMEBODY]:
            self.watches.remove(feed, _SOMEBODY)

    def _time_to_tell(self, feed: str, pages: Sequence[Page]) -> bool:
        """Now and then idle connections hear the cursor, so that it never leaves the log."""
        moment = pages[-1].at_ms // limits.TELL_EVERY_MS
        before, self._moments_sent[feed] = self._moments_sent.get(feed), moment
        return before != moment

    def _join(self, feed: str, change: Change, checkpoint: int) -> None:
        """The change may be an old one, posted late; what the connection says counts."""
        connection = self.delivery.connections.get(change.connection_id)
        if connection is None or connection.feed != feed or connection.state is not State.JOINING:
            return  # gone, left again, or taken up before a crash
        if connection.admission.has_ended(endings_of(self.profiles.profile(feed)), 0):
            self.delivery.end(connection.id)  # while it was on its way to us
            return
        if not self._send_missed(connection, checkpoint):
            return
        since = max(connection.since, checkpoint)
        watch = Subscription(connection.id, connection.filter, since, connection.admission)
        if watch.filter.leave:
            self.watches.add(feed, _SOMEBODY)
        self.watches.add(feed, watch)
        live = connection.changed(state=after(connection.state, Event.TAKEN_UP))
        if not self.delivery.connections.update(connection, live):
            self.watches.remove(feed, watch)  # it left or went meanwhile

    def _send_missed(self, connection: Connection, checkpoint: int) -> bool:
        """
        What lies between the page the connection has and the page we have, in a few reads.

        A connection that fell off the log, or is further behind than a turn has time for, is cut:
        its client comes back and resumes from its cursor.
        """
        behind = connection.since
        profile = self.profiles.profile(connection.feed)
        reads = 0
        while behind < checkpoint:
            pages: Sequence[Page] = ()
            if reads < limits.JOIN_READS_MAX:
                pages = self.reader.read_on(connection.feed, behind, checkpoint - behind).pages
                reads += 1
            if not pages:
                self.delivery.cut(connection.id)
                return False
            lefts = self.departures.left(connection.feed, pages) if connection.filter.leave else {}
            messages = _messages(pages, connection.filter, lefts, profile)
            if not self.delivery.send(connection.id, messages):
                return False
            behind = pages[-1].number
        return True

    def _leave(self, feed: str, change: Change) -> None:
        """As with `_join`: it may have been let go before, and have subscribed again."""
        connection = self.delivery.connections.get(change.connection_id)
        if connection is None:
            self.watches.remove(
                feed, Subscription(change.connection_id, change.filter, change.since)
            )
        elif connection.feed == feed and leaves_push(connection):
            self.watches.remove(
                feed, Subscription(connection.id, connection.filter, connection.since)
            )
            let_go(self.delivery, connection)


def _minds_cursors(watch: Subscription) -> bool:
    """A listener never resumes; nobody reads what the watch of nobody is sent."""
    return watch != _SOMEBODY and not watch.filter.listens


def _messages(
    pages: Sequence[Page], wanted: Filter, lefts: Mapping[int, Left], profile: Profile
) -> list[str]:
    """What *pages* hold for one connection."""
    if wanted.listens:
        return list(items_of(pages, wanted, declared(profile.resources)))
    events = (
        to_json(with_ref(event, profile.object_url))
        for page in pages
        for event in page_events(page, wanted, left=lefts.get(page.number))
    )
    return list(pack(events, pages[-1].end.encode()))


def leaves_push(connection: Connection) -> bool:
    """Whether it waits for the push follower to let go; with progress, for the replay."""
    return connection.state is State.LEAVING and not connection.progress


def let_go(delivery: Delivery, connection: Connection) -> None:
    """The last act of whoever served *connection*: it is open again and told so."""
    opened = Connection(
        connection.id,
        connection.opened_ms,
        after(connection.state, Event.LET_GO),
        version=connection.version + 1,
    )
    if delivery.connections.update(connection, opened):
        delivery.send(connection.id, [reply("unsubscribed")])
