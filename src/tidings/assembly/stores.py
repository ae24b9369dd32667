"""The stores and senders that a host provides, one attribute each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidings.core.archive.stores import ArchiveStore
    from tidings.core.auth.keys import KeyStore
    from tidings.core.changeagent.stores import OperatorDocuments, TagStore
    from tidings.core.consumers.stores import ConsumerShelf, ConsumerStore
    from tidings.core.counters import Counters
    from tidings.core.followers.stores import FollowerStore, Standings, Waker
    from tidings.core.log.renewal import RenewStore
    from tidings.core.log.stores import Checkpoints, ClaimStore, Intake, LogStore, TrimStore
    from tidings.core.replication.stores import Coordinator, RelayStore
    from tidings.core.settings.stores import Profiles
    from tidings.core.state.stores import RemovedParentsStore, StateStore, SumStore
    from tidings.core.state.tombstones import TombstoneStore
    from tidings.core.triton.stores import Registry
    from tidings.core.websocket.replay import Room
    from tidings.core.websocket.stores import (
        ConnectionStore,
        Inbox,
        Roster,
        Sockets,
        SubscriptionStore,
    )

    class Log(LogStore, Intake, TrimStore, Protocol): ...

    class Followers(FollowerStore, Standings, Protocol): ...

    class Connections(ConnectionStore, Roster, Protocol): ...

    class Consumers(ConsumerStore, ConsumerShelf, Protocol): ...


class RelayPasswords(Protocol):
    """The passwords that relays send to their upstreams."""

    def password(self, feed: str) -> str:
        """Return the password for the upstream of *feed*; "" without one."""

    def save(self, feed: str, password: str) -> None:
        """Store it."""


class Stores:
    """
    Base class of the stores of one host.

    A host assigns each attribute, or overrides it by a `cached_property` if it connects only to
    what is used. `unretried` are the stores of reports and health checks: they fail at once.
    """

    log: Log
    renewals: RenewStore
    claims: ClaimStore
    followers: Followers
    counters: Counters
    state: StateStore
    removed_parents: RemovedParentsStore
    tombstones: TombstoneStore
    sums: SumStore
    tags: TagStore
    profiles: Profiles
    documents: OperatorDocuments
    keys: KeyStore
    key_usage: KeyUsage
    consumers: Consumers
    relays: RelayStore
    relay_passwords: RelayPasswords
    coordinator: Coordinator | None
    archive: ArchiveStore | None
    connections: Connections
    inbox: Inbox
    subscriptions: SubscriptionStore
    registry: Registry
    sockets: Sockets
    replay_sockets: Sockets  # for long messages to one connection
    replay_room: Room | None  # asks whether a connection can take more; None: it always can
    settled: Checkpoints  # of a state that shows everything that was acknowledged before
    waker: Waker
    unretried: Stores
