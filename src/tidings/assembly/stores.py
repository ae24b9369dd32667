"""The stores and senders that a host provides, each as one attribute."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidings.core.archive.segments import ArchiveStore
    from tidings.core.auth.keys import KeyStore
    from tidings.core.auth.quotas import KeyUsage
    from tidings.core.changeagent.documents import OperatorDocuments
    from tidings.core.changeagent.tag_index import TagStore
    from tidings.core.consumers.consumer import ConsumerStore
    from tidings.core.counters import Counters
    from tidings.core.erasure.records import ErasureStore, Ledger, RewriteStore
    from tidings.core.feeds.records import FeedStore
    from tidings.core.followers.leases import FollowerStore, Waker
    from tidings.core.ingest.outbox import Outbox
    from tidings.core.log.append import ClaimStore
    from tidings.core.log.due import DueFeeds
    from tidings.core.log.stores import LogStore
    from tidings.core.maintenance.restore import Numbers
    from tidings.core.maintenance.retention import Round
    from tidings.core.records import Records, RecordStore
    from tidings.core.replication.election import Coordinator
    from tidings.core.replication.relay import RelayPasswords, RelayStore
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.state.removed_parents import RemovedParentsStore
    from tidings.core.state.rows import StateStore
    from tidings.core.state.sums import SumStore
    from tidings.core.state.tombstones import TombstoneStore
    from tidings.core.triton.registration import Registry
    from tidings.core.websocket.connections import ConnectionStore, Inbox, SubscriptionStore
    from tidings.core.websocket.replay import Room
    from tidings.core.websocket.send import Sockets


class Views(Protocol):
    """The stores that are the same on every host: views on its `records`, built on first use."""

    if TYPE_CHECKING:

        @property
        def records(self) -> RecordStore: ...

    @cached_property
    def feed_store(self) -> FeedStore:
        from tidings.core.feeds.records import FeedStore

        return FeedStore(self.records)

    @cached_property
    def consumers(self) -> ConsumerStore:
        from tidings.core.consumers.consumer import ConsumerStore

        return ConsumerStore(self.records)

    @cached_property
    def erasures(self) -> ErasureStore:
        from tidings.core.erasure.records import ErasureStore

        return ErasureStore(self.records)

    @cached_property
    def relay_passwords(self) -> RelayPasswords:
        from tidings.core.replication.relay import RelayPasswords

        return RelayPasswords(self.records)

    @cached_property
    def tombstones(self) -> TombstoneStore:
        from tidings.core.state.tombstones import TombstoneStore

        return TombstoneStore(self.records)

    @cached_property
    def profiles(self) -> ProfileStore:
        from tidings.core.settings.profiles import ProfileStore

        return ProfileStore(self.records)

    @cached_property
    def documents(self) -> OperatorDocuments:
        from tidings.core.changeagent.documents import OperatorDocuments

        return OperatorDocuments(self.records)

    @cached_property
    def renewals(self) -> Records[Round]:
        from tidings.core.maintenance.retention import rounds_in

        return rounds_in(self.records)

    @cached_property
    def keys(self) -> KeyStore:
        from tidings.core.auth.keys import KeyStore

        return KeyStore(self.records)


class Stores(Views, Protocol):
    """The stores of one host. A host may delay the connection to a store until the first use.

    The stores in `without_retries` fail at once, without retries; reports and health checks use
    them. `without_retries` is None if the stores never retry. `replay_room` checks if a connection
    has room for more messages. `replay_room` is None if a connection always has room.
    `erasure_ledger` is None if the host has no place apart from the tables, and `outbox` if it has
    no producers that write to a table.
    """

    @property
    def log(self) -> LogStore: ...
    @property
    def numbers(self) -> Numbers: ...
    @property
    def due_feeds(self) -> DueFeeds: ...
    @property
    def claims(self) -> ClaimStore: ...
    @property
    def followers(self) -> FollowerStore: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def state(self) -> StateStore: ...
    @property
    def removed_parents(self) -> RemovedParentsStore: ...
    @property
    def sums(self) -> SumStore: ...
    @property
    def tags(self) -> TagStore: ...
    @property
    def key_usage(self) -> KeyUsage: ...
    @property
    def erasure_ledger(self) -> Ledger | None: ...
    @property
    def rewrites(self) -> RewriteStore: ...
    @property
    def relays(self) -> RelayStore: ...
    @property
    def coordinator(self) -> Coordinator | None: ...
    @property
    def outbox(self) -> Outbox | None: ...
    @property
    def archive(self) -> ArchiveStore | None: ...
    @property
    def connections(self) -> ConnectionStore: ...
    @property
    def inbox(self) -> Inbox: ...
    @property
    def subscriptions(self) -> SubscriptionStore: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def sockets(self) -> Sockets: ...
    @property
    def replay_sockets(self) -> Sockets: ...
    @property
    def replay_room(self) -> Room | None: ...
    @property
    def waker(self) -> Waker: ...
    @property
    def without_retries(self) -> Stores | None: ...
