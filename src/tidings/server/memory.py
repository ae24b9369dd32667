"""Stores in memory, for data that ends with the process.

These are connections, subscriptions, leases of followers, and the usage of keys. Tests also use
these stores in place of the stores of other hosts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import is_ahead
from tidings.core.errors import LeaseLost
from tidings.core.followers.leases import Lease
from tidings.core.newest import Newest
from tidings.core.triton.registration import Listener, Registered
from tidings.core.websocket.connections import (
    Change,
    Connection,
    ConnectionPage,
    Round,
    Subscription,
    storage_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.followers.leases import Observation


class MemoryInbox:
    """Implements `Inbox`."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str, bool], Change] = {}
        self._lock = Lock()

    def post(self, lane: str, change: Change) -> None:
        with self._lock:
            self._changes[lane, change.connection_id, change.moves] = change

    def list(self, lane: str) -> Sequence[Change]:
        with self._lock:
            return [change for (of, *_), change in sorted(self._changes.items()) if of == lane]

    def done(self, lane: str, change: Change) -> None:
        with self._lock:
            at = (lane, change.connection_id, change.moves)
            if at in self._changes and self._changes[at].token == change.token:
                del self._changes[at]

    def forget(self, lane: str, connection_id: str) -> Change | None:
        """Remove the pending change of the connection's subscription; return it, or None."""
        with self._lock:
            return self._changes.pop((lane, connection_id, False), None)


class MemorySubscriptions:
    """Implements `SubscriptionStore`.

    An index key without subscriptions is not stored, so lookups of keys do not use up memory.
    """

    def __init__(self) -> None:
        self._subscriptions: dict[tuple[str, str], dict[str, Subscription]] = {}
        # For each lane all its subscriptions, and how often they are stored, until one changes.
        self._listed: dict[str, tuple[int, Sequence[Subscription]]] = {}
        self._lock = Lock()

    def add(self, lane: str, subscription: Subscription) -> None:
        with self._lock:
            self._listed.pop(lane, None)
            for key in sorted(subscription.filter.keys()):
                self._subscriptions.setdefault((lane, key), {})[subscription.connection_id] = (
                    subscription
                )

    def remove(self, lane: str, subscription: Subscription) -> None:
        with self._lock:
            self._listed.pop(lane, None)
            for key in sorted(subscription.filter.keys()):
                filed = self._subscriptions.get((lane, key), {})
                filed.pop(subscription.connection_id, None)
                if not filed:
                    self._subscriptions.pop((lane, key), None)

    def find(self, lane: str, key: str) -> Sequence[Subscription]:
        with self._lock:
            return [
                subscription
                for _, subscription in sorted(self._subscriptions.get((lane, key), {}).items())
            ]

    def all_if_at_most(self, lane: str, at_most: int) -> Sequence[Subscription] | None:
        stored, subscriptions = self._read(lane)
        return subscriptions if stored <= at_most else None

    def some(self, lane: str, at_most: int) -> Sequence[Subscription]:
        return self._read(lane)[1][:at_most]

    def all(self, lane: str) -> Sequence[Subscription]:
        return self._read(lane)[1]

    def _read(self, lane: str) -> tuple[int, Sequence[Subscription]]:
        with self._lock:
            if lane not in self._listed:
                filed = [
                    each for key, each in sorted(self._subscriptions.items()) if key[0] == lane
                ]
                by_connection = {name: each for some in filed for name, each in some.items()}
                subscriptions = [each for _, each in sorted(by_connection.items())]
                self._listed[lane] = sum(map(len, filed)), subscriptions
            return self._listed[lane]


class MemoryRegistry:
    """Implements `Registry`."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], Registered] = {}
        self._lock = Lock()

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        replaced: set[str] = set()
        with self._lock:
            for kind in listener.kinds:
                at = (feed, listener.instance, kind.resource)
                if at in self._entries:
                    replaced.add(self._entries[at].connection_id)
                self._entries[at] = Registered(
                    connection_id, listener.instance, listener.service, kind
                )
        return sorted(replaced - {connection_id})

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        with self._lock:
            for kind in listener.kinds:
                at = (feed, listener.instance, kind.resource)
                if at in self._entries and self._entries[at].connection_id == connection_id:
                    del self._entries[at]

    def registered(self, feed: str) -> Sequence[Registered]:
        with self._lock:
            return [entry for (of, *_), entry in sorted(self._entries.items()) if of == feed]


class MemoryConnections:
    """Implements `ConnectionStore`.

    Removing a connection also removes its pending change from *inbox*, its entries from *registry*,
    and its subscriptions from *subscriptions*. The subscriptions are found by the index keys of two
    filters: the filter of the connection, and the filter of its pending change. The store on
    DynamoDB, which has no index by connection, does the same.
    """

    def __init__(
        self,
        inbox: MemoryInbox,
        subscriptions: MemorySubscriptions,
        registry: MemoryRegistry | None = None,
    ) -> None:
        self._inbox, self._subscriptions = inbox, subscriptions
        self._registry = registry or MemoryRegistry()
        self._connections: dict[str, Connection] = {}
        self._round = Round()
        self._lock = Lock()

    def open(self, connection: Connection) -> None:
        """Store a new connection.

        No lock is needed, because only the event loop stores new connections, with new ids.
        """
        self._connections[connection.id] = connection

    def get(self, connection_id: str) -> Connection | None:
        with self._lock:
            return self._connections.get(connection_id)

    def update(self, old: Connection, new: Connection) -> bool:
        assert new.id == old.id
        with self._lock:
            current = self._connections.get(old.id)
            if current is None or current.version != old.version:
                return False
            self._connections[new.id] = replace(new, version=old.version + 1)
            return True

    def remove(self, connection_id: str) -> None:
        with self._lock:
            connection = self._connections.pop(connection_id, None)
        if connection is None or not connection.feed:
            return
        if connection.listener is not None:
            self._registry.leave(connection.feed, connection_id, connection.listener)
        lane = storage_key(connection.feed, connection.lane)
        change = self._inbox.forget(lane, connection_id)
        for wanted in {connection.filter, change.filter if change else connection.filter}:
            self._subscriptions.remove(lane, Subscription(connection_id, wanted, since=0))

    def page(self, resume_at: str, limit: int) -> ConnectionPage:
        """Return the next connections by id. *resume_at* is the last id of the previous page."""
        with self._lock:
            ids = sorted(self._connections)
            first = bisect_right(ids, resume_at)
            connections = [self._connections[each] for each in ids[first : first + limit]]
        return ConnectionPage(connections, connections[-1].id if first + limit < len(ids) else "")

    def round(self) -> Round:
        return self._round

    def keep(self, round_: Round) -> None:
        self._round = round_


Saved = tuple[int, int, bytes]  # the checkpoint, operations and note of a follower


@dataclass(eq=False, slots=True)
class StoredFollower:
    feed: str
    name: str
    owner: str = ""
    expires_ms: int = 0
    fence: int = 0
    beat: int = 0
    marks: int = 0
    look: str = ""
    saved: Saved = (0, 0, b"")  # always replaced as a whole, so that readers need no lock

    def renew(self, now_ms: int) -> None:
        self.expires_ms = now_ms + limits.LEASE_MS
        self.beat += 1


class MemoryFollowers:
    """Implements `FollowerStore` and `Checkpoints`.

    The event loop may use this store, because it has no lock. No lock is needed, because only one
    thread at a time runs a follower, and other threads only read its data.
    """

    def __init__(self) -> None:
        self._feeds: dict[str, dict[str, StoredFollower]] = {}

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        follower = self.stored(feed, name)
        if not follower.owner or (over and over.is_of(self.lease(follower))):
            follower.owner = owner
            follower.fence += 1
            follower.renew(now_ms)
        return self.lease(follower)

    def stored(self, feed: str, name: str) -> StoredFollower:
        """Return the follower *name* of *feed*, which may not have run yet."""
        followers = self._feeds.get(feed)
        if followers is None:
            followers = self._feeds.setdefault(feed, self._of_feed(feed))
        return followers.get(name) or followers.setdefault(name, StoredFollower(feed, name))

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        follower = self._of_feed(feed).get(name)
        if follower is None or not follower.owner:
            return None
        follower.marks += 1
        before, follower.look = follower.look, look or follower.look
        return before

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        follower = self._of(lease)
        if follower is None:
            raise LeaseLost(feed=lease.feed, follower=lease.name, fence=lease.fence)
        self.move(follower, (checkpoint, lease.operations, lease.note))
        follower.renew(now_ms)
        return self.lease(follower)

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        follower = self._of(lease)
        if follower is None:
            return True
        if follower.marks != lease.marks and not force:
            return False
        self.move(follower, (lease.checkpoint, lease.operations, lease.note))
        follower.owner, follower.expires_ms = "", 0
        return True

    def checkpoints(self, feed: str) -> dict[str, int]:
        return {each.name: self.saved_of(each)[0] for each in self._sorted(feed)}

    def leases(self, feed: str) -> Sequence[Lease]:
        return [self.lease(each) for each in self._sorted(feed)]

    def set_checkpoint(
        self, feed: str, name: str, checkpoint: int, operations: int = 0, note: bytes = b""
    ) -> None:
        """Set the checkpoint of a follower that does not run; a run that is ending is ignored."""
        follower = StoredFollower(feed, name, saved=(checkpoint, operations, note))
        self._feeds.setdefault(feed, self._of_feed(feed))[name] = follower

    def _sorted(self, feed: str) -> Sequence[StoredFollower]:
        return [follower for _, follower in sorted([*self._of_feed(feed).items()])]

    def _of_feed(self, feed: str) -> dict[str, StoredFollower]:
        """Return the followers of *feed* by name, which the caller does not change."""
        return self._feeds.get(feed) or {}

    def move(self, follower: StoredFollower, saved: Saved) -> None:
        follower.saved = saved

    def saved_of(self, follower: StoredFollower) -> Saved:
        return follower.saved

    def _of(self, lease: Lease) -> StoredFollower | None:
        """Return the follower of *lease* if *lease* is still valid, else None."""
        follower = self._of_feed(lease.feed).get(lease.name)
        if follower and (follower.fence, follower.owner) == (lease.fence, lease.owner):
            return follower
        return None

    def lease(self, follower: StoredFollower) -> Lease:
        checkpoint, operations, note = self.saved_of(follower)
        return Lease(
            follower.feed,
            follower.name,
            owner=follower.owner,
            fence=follower.fence,
            marks=follower.marks,
            checkpoint=checkpoint,
            expires_ms=follower.expires_ms,
            operations=operations,
            beat=follower.beat,
            look=follower.look,
            note=note,
        )


class MemoryKeyUsage:
    """Implements `KeyUsage`.

    The store keeps the counts of the current window of each key and of the windows next to it,
    because a caller that reads the clock just before a window ends may add its count just after.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], int] = {}
        self._counts: Newest[tuple[str, str], Counter[int]] = Newest(limits.KEYS_KNOWN_MAX)
        self._lock = Lock()

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        with self._lock:
            counts = self._counts.get((feed, name)) or Counter()
            self._counts[feed, name] = counts
            counts[window] += requests
            for over in [each for each in counts if abs(each - window) > 1]:
                del counts[over]
            return counts[window]

    def hold(self, feed: str, principal: str, name: str, *, until_ms: int, now_ms: int) -> int:
        with self._lock:
            self._held[feed, principal, name] = until_ms
            of = [until for place, until in self._held.items() if place[:2] == (feed, principal)]
            return sum(is_ahead(until, now_ms, limits.STREAM_HOLD_MS) for until in of)

    def release(self, feed: str, principal: str, name: str, until_ms: int) -> None:
        with self._lock:
            self._held.pop((feed, principal, name), None)
