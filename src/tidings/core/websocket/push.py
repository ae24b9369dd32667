"""The follower `push`, which sends each page to the connections with matching subscriptions.

A feed has one or several push followers, called lanes. Each lane serves some of the connections
(`lane_for`). Only the lane of a connection makes its subscription live and sends it messages. The
lease ensures that one process at a time runs the lane. To make a connection join or leave, a
function posts a change to the inbox of the lane and wakes the lane. The lane first reads from the
log the pages between the last page of the connection's replay and the checkpoint, and sends them to
the joining connection. So the hand-over neither skips nor reorders pages.

When the number of lanes changes, a lane releases the connections that now belong to another lane,
and these connections join the other lane. The releasing lane first writes the moves to its own
inbox. After a crash, the lane therefore finishes the releases before it sends anything.

If any subscription requests `leave` events, the lane waits for the follower `state`, which
determines the parents that were removed. A marker, which is a subscription without a connection,
records that a subscription requests `leave` events. The marker is stored under the index key
`ALL_KEY`, which is looked up for each operation anyway.

A turn is the handling of one batch of pages. An idle connection has received no event for some
time. It gets the current cursor, so that its client does not resume from a page that was trimmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup.matching import page_events, with_ref
from tidings.core.effects import is_ahead
from tidings.core.model.events import pack, reply, to_traced_json
from tidings.core.model.feeds import PUSH, follower_of, pushers
from tidings.core.model.filters import ALL_KEY, LEAVERS
from tidings.core.newest import Newest
from tidings.core.settings.profiles import endings_at
from tidings.core.settings.values import by_name
from tidings.core.triton.items import items_of
from tidings.core.websocket import fanout
from tidings.core.websocket.connections import (
    Change,
    Connection,
    Subscription,
    lane_for,
    storage_key,
)
from tidings.core.websocket.session import Act, Event, State, after

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidings.core.effects import Spread
    from tidings.core.followers.leases import FollowerStore, Lease
    from tidings.core.log.reader import Reader
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import Profile, ProfileStore
    from tidings.core.settings.values import Endings
    from tidings.core.state.removed_parents import RemovedBySlot, RemovedParentsReader
    from tidings.core.triton.registration import Listener
    from tidings.core.websocket.connections import Lanes, SubscriptionStore
    from tidings.core.websocket.send import Delivery

LEAVE_SENTINEL = Subscription("", LEAVERS, since=0)  # the marker, see the top of this module
# Maximum number of attempts to move a connection in a turn. An attempt fails if the client changes
# the connection in the meantime.
_MOVE_ATTEMPTS = 5


@dataclass(slots=True)
class _Known:
    """The data about a feed that a lane of push keeps between turns.

    *misplaced* are the subscriptions in this lane that belong to another lane if the feed has
    *count* lanes. If *stale* is True, the misplaced subscriptions must be determined again, because
    a connection may have joined this lane according to another number of lanes. This can happen in
    this process, or in another process that had the lease in the meantime.

    The first lane wakes the other lanes. *woken* is the number of lanes, including lanes that were
    removed recently. Removed lanes are woken until *until_ms*, which is compared with the commit
    times of pages.

    *page* is the last page that this process has handled, and *cursor* is the event id at its end.
    *period* is the commit time of this page divided by `limits.IDLE_CURSOR_MS`. *idle* are the idle
    subscriptions that must still get *cursor*.

    *ended* are the revoked or expired keys for which all subscriptions were checked. Until
    *index_until_ms*, which is compared with the commit times of pages, subscriptions are looked up
    by the index keys of their filters, and are not read all at once. *fence* is the fence of the
    last lease that this process had. *index* is the index of the subscriptions *found* for the
    pages after page *after*.
    """

    count: int = 0
    misplaced: list[Subscription] = field(default_factory=list)
    woken: int = 1
    until_ms: int = 0
    idle: dict[str, Subscription] = field(default_factory=dict)
    cursor: str = ""
    page: int = 0
    period: int = 0
    ended: frozenset[str] = frozenset()
    index_until_ms: int = 0
    fence: int = 0
    stale: bool = False
    found: Sequence[Subscription] = ()
    index: fanout.Index | None = None
    after: int = 0

    def index_of(self, found: Sequence[Subscription], after: int) -> fanout.Index:
        """Return an index of *found* for pages after page *after*.

        A store in memory returns the same object until a subscription changes. So keep the index,
        unless it is valid for this batch only, because a subscription begins after *after*.
        """
        if self.index is not None and found is self.found and after >= self.after:
            return self.index
        index = fanout.Index.of_few(found, after)
        is_kept = all(each.since <= after for each in found)
        self.found, self.after, self.index = found, after, index if is_kept else None
        return index


@dataclass(slots=True, kw_only=True)
class Lane:
    """The stores of the lane *number*; *lanes* has the inboxes of all lanes.

    Up to *few* subscriptions of a feed are read at once, and never fewer than on a stage.
    """

    lanes: Lanes
    subscriptions: SubscriptionStore
    followers: FollowerStore
    number: int = 0
    few: int = 0

    def storage_key(self, feed: str) -> str:
        """Return the name under which stores keep the data of this lane."""
        return storage_key(feed, self.number)


@dataclass(slots=True, kw_only=True)
class Pusher:
    """The handler of *lane*. The logs of feeds in *chained* may skip pages."""

    lane: Lane
    delivery: Delivery
    reader: Reader
    removed_parents_reader: RemovedParentsReader
    profiles: ProfileStore
    chained: Collection[str] = ()
    _known: dict[str, _Known] = field(default_factory=Newest)

    @property
    def name(self) -> str:
        return follower_of(self.lane.number)

    @property
    def spread(self) -> Spread:
        return self.delivery.runtime.spread

    def begin(self, lease: Lease) -> int:
        """Return the page to resume after.

        A lane without subscriptions skips to the checkpoint of the first lane if that is later.
        """
        feed, checkpoint, known = lease.feed, lease.checkpoint, self._of(lease.feed)
        known.stale = known.stale or lease.fence != known.fence + 1
        known.fence = lease.fence
        if (
            not self.lane.number
            or self.lane.subscriptions.all_if_at_most(self.lane.storage_key(feed), 0) is None
        ):
            return checkpoint
        return max(checkpoint, self.reader.checkpoints.checkpoints(feed).get(PUSH, 0))

    def note(self, feed: str) -> bytes:
        """Return an empty note."""
        return b""

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """Apply the changes of subscriptions in the inbox, and send the cursor to idle connections.

        Return True if more work of this kind is left.

        Changes are applied concurrently, and their number is limited, so that a turn ends in time
        even if many clients subscribe at once. The number of moves that a turn writes to the inbox
        is limited, too. But a turn applies all moves in the inbox. If a process crashed while it
        released a connection, this lane may still have the old subscription of a connection that
        another lane serves now. No message may be sent for the old subscription.
        """
        misplaced = self._note_misplaced(feed)
        waiting: dict[str, list[Change]] = {}
        for change in self.lane.lanes.inbox.list(self.lane.storage_key(feed)):
            if not (change.joins and self._is_early(feed, change, checkpoint)):
                waiting.setdefault(change.connection_id, []).append(change)

        def apply(connection_id: str) -> None:
            for change in sorted(waiting[connection_id], key=lambda each: not each.moves):
                self._apply(feed, change, checkpoint)

        moving = [each for each, changes in waiting.items() if _any_moves(changes)]
        others = [each for each, changes in waiting.items() if not _any_moves(changes)]
        self.spread(apply, [*moving, *others[: limits.CHANGES_MAX]])
        idle = self._send_idle_cursors(feed, checkpoint)
        return misplaced or idle or len(others) > limits.CHANGES_MAX

    def _apply(self, feed: str, change: Change, checkpoint: int) -> None:
        if change.moves:
            self._move(feed, change, checkpoint)
        elif change.joins:
            self._join(feed, change, checkpoint)
        else:
            self._leave(feed, change)
        self.lane.lanes.inbox.done(self.lane.storage_key(feed), change)

    def _note_misplaced(self, feed: str) -> bool:
        """Write moves of misplaced connections to the inbox of this lane.

        Return True if some connections are left for the next turn.
        """
        known, count = self._of(feed), self.lane.lanes.count(feed)
        changed = known.stale or known.count != count
        if changed and max(self.lane.number, known.count - 1, count - 1) > 0:
            self._recount(feed, known)
        known.count, known.stale = known.count or count, False
        some = known.misplaced[: limits.CHANGES_MAX]

        def note(connection_id: str) -> None:
            self.lane.lanes.inbox.post(self.lane.storage_key(feed), changes[connection_id])

        changes = {
            subscription.connection_id: Change(
                subscription.connection_id,
                False,
                subscription.filter,
                0,
                self.lane.lanes.new_id(),
                moves=True,
            )
            for subscription in some
        }
        self.spread(note, list(changes))
        del known.misplaced[: len(some)]
        return known.misplaced != []

    def _recount(self, feed: str, known: _Known) -> None:
        """Determine the misplaced connections for the current number of lanes.

        The number is read from the store, because two lanes that use different numbers of lanes
        would move a connection back and forth.
        """
        before, known.count = known.count, self.lane.lanes.recount(feed)
        known.misplaced = [
            subscription
            for subscription in self.lane.subscriptions.all(self.lane.storage_key(feed))
            if subscription != LEAVE_SENTINEL
            and lane_for(subscription.connection_id, known.count) != self.lane.number
        ]
        if before > known.count:
            known.woken, known.until_ms = before, 0

    def _of(self, feed: str) -> _Known:
        return self._known.setdefault(feed, _Known())

    def _wake_lanes(self, feed: str, at_ms: int) -> None:
        """Wake the other lanes, because the stream of the log wakes only the first lane.

        If a lane is running, mark its lease instead, so that the run continues with new pages.
        """
        known = self._of(feed)
        if known.woken > known.count and not known.until_ms:
            known.until_ms = at_ms + limits.LANE_DRAIN_MS
        if not is_ahead(known.until_ms, at_ms, limits.LANE_DRAIN_MS):
            known.woken = known.count

        def wake(follower: str) -> None:
            if self.lane.followers.mark(feed, follower) is None:
                self.lane.lanes.waker.wake(feed, follower)

        self.spread(wake, pushers(max(known.woken, known.count))[1:])

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        if not self.lane.number:
            self._wake_lanes(feed, pages[-1].at_ms)
        index = self._index(feed, pages)
        leave = any(audience.filter.leave for audience in index.find(ALL_KEY))
        ready = self._pages_in_state(feed, pages) if leave else pages
        if not ready:
            return 0
        removed_at = self.removed_parents_reader.by_page(feed, ready) if leave else None
        profile = self.profiles.profile(feed)
        resources = by_name(profile.resources)
        plan = fanout.plan(ready, index, removed_at, profile.object_url, resources)
        self._disconnect_ended(feed, index, plan, endings_at(self.profiles, feed), pages[-1].at_ms)
        self._send(feed, ready[: plan.pages], index, plan)
        return plan.pages

    def _index(self, feed: str, pages: Sequence[Page]) -> fanout.Index:
        """Return an index of the subscriptions, for *pages*.

        If the feed has few subscriptions, as most feeds do, read all of them at once. Otherwise the
        index looks subscriptions up by the index keys of their filters.
        """
        lane, known = self.lane.storage_key(feed), self._of(feed)
        after, at_ms = pages[0].first - 1, pages[-1].at_ms
        if not is_ahead(known.index_until_ms, at_ms, limits.INDEX_MS):
            found = self.lane.subscriptions.all_if_at_most(
                lane, max(self.lane.few, limits.FEW_SUBSCRIPTIONS)
            )
            if found is not None:
                return known.index_of(found, after)
            known.index_until_ms = at_ms + limits.INDEX_MS
        return fanout.Index.of(
            partial(self.lane.subscriptions.find, lane),
            partial(self.lane.subscriptions.all, lane),
            after,
        )

    def _disconnect_ended(
        self, feed: str, index: fanout.Index, plan: fanout.Plan, endings: Endings, at_ms: int
    ) -> None:
        """Disconnect clients with a key that was revoked or has expired.

        A client must not receive an operation that was committed after the end of its key. *at_ms*
        is the commit time of the last page. Check every connection that is about to receive an
        event. After a new revocation, check all connections of the lane once.
        """
        known = self._of(feed)
        new_endings = endings.keys() - known.ended
        known.ended = frozenset(endings)
        audiences = index.audiences() if new_endings else list(plan.wanted)
        ended = [each for each in audiences if each.admission.has_ended(endings, at_ms)]
        for audience in ended:
            plan.wanted.pop(audience, None)
        connection_ids = [each for audience in ended for each in audience.members]
        for connection_id in connection_ids:
            known.idle.pop(connection_id, None)
        self.spread(self.delivery.end, connection_ids)

    def _is_early(self, feed: str, change: Change, checkpoint: int) -> bool:
        """Return True if *change* needs removed parents that are not stored up to *checkpoint* yet.

        The follower `state` stores the removed parents, and wakes push when it has handled pages.
        """
        waits = change.filter.leave and self._keeps(feed)
        return waits and self.removed_parents_reader.until(feed) < checkpoint

    def _keeps(self, feed: str) -> bool:
        return self.profiles.profile(feed).leave

    def on_checkpoint(self, feed: str) -> None:
        """Do nothing, because no other function depends on the checkpoint."""

    def on_pages_lost(self, feed: str) -> bool:
        """Cut all clients of a feed in `chained`, and return True to skip the missing pages.

        The clients resume from their cursors. Return False for any other feed: its log keeps pages
        until they are pushed, so the loss of a page is an error.
        """
        if feed not in self.chained:
            return False
        lane = self.lane.storage_key(feed)
        subscriptions = [
            subscription
            for subscription in self.lane.subscriptions.all(lane)
            if subscription != LEAVE_SENTINEL
        ]
        self.spread(
            self.delivery.cut, [subscription.connection_id for subscription in subscriptions]
        )
        return True

    def _pages_in_state(self, feed: str, pages: Sequence[Page]) -> Sequence[Page]:
        """Return the pages that the follower `state` has handled.

        `state` wakes push when it has handled more pages. If the feed does not store removed
        parents, `state` does not wake push, so return all pages.
        """
        if not self._keeps(feed):
            return pages
        until = self.removed_parents_reader.until(feed)
        return [page for page in pages if page.number <= until]

    def _send(
        self, feed: str, pages: Sequence[Page], index: fanout.Index, plan: fanout.Plan
    ) -> None:
        messages = {connection_id: batch for ids, batch in plan.messages() for connection_id in ids}
        known, last = self._of(feed), pages[-1].number
        if self._is_idle_cursor_due(feed, pages):
            self._forget_leavers(feed, index.subscriptions())
            known.idle = {
                subscription.connection_id: subscription
                for subscription in index.subscriptions()
                if subscription.connection_id not in messages
                and subscription.since < last
                and subscription != LEAVE_SENTINEL
                and not subscription.filter.listens
            }
            if known.idle:
                self.lane.followers.mark(feed, self.name)  # so that this run continues with `idle`
        known.cursor, known.page, known.period = plan.cursor, last, _period(pages[-1])
        self._deliver(feed, messages, plan.subscriptions)

    def _send_idle_cursors(self, feed: str, checkpoint: int) -> bool:
        """Send the cursor to some idle connections; return True if some are left.

        Send nothing if another process has handled pages in the meantime, because that process
        sends a later cursor to these connections.
        """
        known = self._of(feed)
        if known.page != checkpoint:
            known.idle = {}
        some = dict(islice(known.idle.items(), limits.IDLE_NOTIFIED_MAX))
        if some:
            moved = list(pack((), known.cursor))
            self._deliver(feed, {connection_id: moved for connection_id in some}, some)
        return known.idle != {}

    def _deliver(
        self, feed: str, messages: dict[str, list[str]], subscriptions: dict[str, Subscription]
    ) -> None:
        lane, idle = self.lane.storage_key(feed), self._of(feed).idle
        if idle:
            for connection_id in messages:
                idle.pop(connection_id, None)
        lost = self.delivery.send_each(messages, self.spread)
        self.spread(
            lambda lost_id: self.lane.subscriptions.remove(lane, subscriptions[lost_id]), lost
        )

    def _forget_leavers(self, feed: str, subscriptions: Sequence[Subscription]) -> None:
        """Remove the marker if no subscription requests `leave` events any more.

        After that, push no longer waits for the follower `state`.
        """
        if [subscription for subscription in subscriptions if subscription.filter.leave] == [
            LEAVE_SENTINEL
        ]:
            self.lane.subscriptions.remove(self.lane.storage_key(feed), LEAVE_SENTINEL)

    def _is_idle_cursor_due(self, feed: str, pages: Sequence[Page]) -> bool:
        """Return True if it is time to send the cursor to idle connections.

        This is at the first page of each period of `limits.IDLE_CURSOR_MS`, before the log trims
        the pages after the last cursor of these connections. If a process crashes during the sends,
        the remaining connections get the cursor in the next period, which is early enough.
        """
        first = pages[0]
        if first.number == 1:
            before: int | None = _period(first)
        elif self._of(feed).page == first.first - 1:
            before = self._of(feed).period
        else:  # this process is new to the feed, or another process had the lease
            read = self.reader.log.read(feed, first.first - 2, 1, eventual=True)
            before = next((_period(page) for page in read if page.number < first.number), None)
        return before != _period(pages[-1])

    def _join(self, feed: str, change: Change, checkpoint: int) -> None:
        """Make a connection live.

        The change may be outdated. Do nothing if the stored connection does not wait to join.
        """
        connection = self.delivery.connections.get(change.connection_id)
        if connection is None or not self._is_ours(feed, connection, State.JOINING):
            return  # the client has left, joins another lane, or was made live before a crash
        if connection.admission.has_ended(endings_at(self.profiles, feed), 0):
            self.delivery.end(connection.id)  # the client's key ended during the hand-over
            return
        if not self._send_missed(connection, checkpoint):
            return
        since = max(connection.since, checkpoint)
        subscription = Subscription(
            connection_id=connection.id,
            filter=connection.filter,
            since=since,
            admission=connection.admission,
            encoding=connection.encoding,
            options=connection.options,
        )
        lane = self.lane.storage_key(feed)
        if subscription.filter.leave:
            self.lane.subscriptions.add(lane, LEAVE_SENTINEL)
        self.lane.subscriptions.add(lane, subscription)
        live = connection.with_fields(state=after(connection.state, Event.JOINED))
        if not self.delivery.connections.update(connection, live):
            self.lane.subscriptions.remove(lane, subscription)  # the client left in the meantime
        elif lane_for(connection.id, self._of(feed).count) != self.lane.number:
            self._of(feed).stale = True  # the connection was assigned by another number of lanes

    def _owns(self, feed: str, connection: Connection) -> bool:
        live = connection.state is State.LIVE or leaves_push(connection)
        return live and (connection.feed, connection.lane) == (feed, self.lane.number)

    def _is_ours(self, feed: str, connection: Connection, state: State) -> bool:
        return (connection.feed, connection.lane, connection.state) == (
            feed,
            self.lane.number,
            state,
        )

    def _move(self, feed: str, change: Change, checkpoint: int) -> None:
        """Release the connection, and hand it over to the lane to which it belongs now.

        The release may be repeated after a crash. The connection then belongs to another lane or
        must join this lane again, so it is right to remove its subscription once more.
        """
        connection = self._move_connection(feed, change, checkpoint)
        if connection is not None and self._owns(feed, connection):
            return  # the connection stays in this lane, or another change ends its subscription
        self._of(feed).idle.pop(change.connection_id, None)
        stale = Subscription(change.connection_id, change.filter, 0)
        self.lane.subscriptions.remove(self.lane.storage_key(feed), stale)
        if connection is not None and connection.state is State.JOINING:
            self.lane.lanes.hand_over(connection)
            self.lane.lanes.wake(connection)

    def _move_connection(self, feed: str, change: Change, checkpoint: int) -> Connection | None:
        """Make the connection join another lane if it must move; return the stored connection."""
        connection = None
        for _ in range(_MOVE_ATTEMPTS):
            connection = self.delivery.connections.get(change.connection_id)
            if connection is None or not self._is_ours(feed, connection, State.LIVE):
                return connection
            lane = lane_for(connection.id, self._of(feed).count)
            if lane == self.lane.number:
                return connection
            since = max(connection.since, checkpoint)
            joining = connection.with_fields(
                state=after(connection.state, Event.MOVED), since=since, lane=lane
            )
            if self.delivery.connections.update(connection, joining):
                return joining
        self._of(feed).stale = True  # the client changed the connection each time; move it later
        return connection

    def _send_missed(self, connection: Connection, checkpoint: int) -> bool:
        """Send the connection the pages after `connection.since` up to *checkpoint*.

        Return False if the connection was lost. Cut the connection if these pages were trimmed, or
        if they need more than `limits.JOIN_READS_MAX` reads. The client then reconnects and resumes
        from its cursor.
        """
        sent = connection.since
        profile = self.profiles.profile(connection.feed)
        reads = 0
        while sent < checkpoint:
            pages: Sequence[Page] = ()
            if reads < limits.JOIN_READS_MAX:
                pages = self.reader.read_or_trimmed(connection.feed, sent, checkpoint - sent).pages
                reads += 1
            if not pages:
                self.delivery.cut(connection.id)
                return False
            leaving = pages if connection.filter.leave else ()
            removed_at = self.removed_parents_reader.by_page(connection.feed, leaving)
            messages = _messages(pages, connection, removed_at, profile)
            if not self.delivery.send(connection.id, messages):
                return False
            sent = pages[-1].number
        return True

    def _leave(self, feed: str, change: Change) -> None:
        """End a subscription.

        The change may be outdated, because the client may have subscribed again. Then do nothing.
        """
        connection = self.delivery.connections.get(change.connection_id)
        lane = self.lane.storage_key(feed)
        self._of(feed).idle.pop(change.connection_id, None)
        if connection is None:
            self.lane.subscriptions.remove(
                lane, Subscription(change.connection_id, change.filter, change.since)
            )
        elif self._is_ours(feed, connection, State.LEAVING) and leaves_push(connection):
            self.lane.subscriptions.remove(
                lane, Subscription(connection.id, connection.filter, connection.since)
            )
            if connection.listener is None:
                release_from_push(self.delivery, connection)
            else:
                self._narrow(connection, connection.listener)

    def _narrow(self, connection: Connection, listener: Listener) -> None:
        """Let the connection continue with the resources in `listener.kinds`.

        Other connections have registered for its other resources. If no resource is left, the
        connection stays open without a subscription.
        """
        state = after(connection.state, Event.RELEASED)
        narrowed = connection.with_fields(state=state)
        if listener.kinds:
            state = after(after(state, Act.SUBSCRIBE), Event.REACHED_FRONTIER)
            narrowed = connection.with_fields(state=state, filter=listener.filter)
        if self.delivery.connections.update(connection, narrowed) and listener.kinds:
            self.lane.lanes.hand_over(narrowed)
            self.lane.lanes.wake(narrowed)


def _any_moves(changes: Sequence[Change]) -> bool:
    return any(change.moves for change in changes)


def _period(page: Page) -> int:
    return page.at_ms // limits.IDLE_CURSOR_MS


def _messages(
    pages: Sequence[Page],
    connection: Connection,
    removed_at: Mapping[int, RemovedBySlot],
    profile: Profile,
) -> list[str]:
    """Return the messages for *connection* with the matching operations in *pages*."""
    wanted = connection.filter
    if wanted.listens:
        return list(items_of(pages, wanted, by_name(profile.resources)))
    options = connection.options
    events = (
        to_traced_json(options.apply(with_ref(event, profile.object_url)))
        for page in pages
        for event in page_events(page, wanted, removed=removed_at.get(page.number))
    )
    return list(pack(events, pages[-1].end.encode(), connection.encoding))


def leaves_push(connection: Connection) -> bool:
    """Return True if *connection* waits for push, and not for the replay, to release it."""
    return connection.state is State.LEAVING and not connection.progress


def release_from_push(delivery: Delivery, connection: Connection) -> None:
    """Store *connection* as open, and confirm to the client that its subscription ended."""
    opened = Connection(
        connection.id,
        connection.opened_ms,
        after(connection.state, Event.RELEASED),
        version=connection.version + 1,
    )
    if delivery.connections.update(connection, opened):
        delivery.send(connection.id, [reply("unsubscribed")])
