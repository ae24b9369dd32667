"""The stores in memory keep the contracts."""

from __future__ import annotations

import pytest

from tests.contract.claim_store import ClaimStoreContract
from tests.contract.connection_store import (
    ConnectionStoreContract,
    InboxContract,
    SubscriptionStoreContract,
)
from tests.contract.consumer_store import ConsumersContract
from tests.contract.document_store import OperatorDocumentsContract
from tests.contract.follower_store import FollowerStoreContract
from tests.contract.key_store import KeysContract
from tests.contract.log_store import LogStoreContract
from tests.contract.number_store import NumbersContract
from tests.contract.outbox_store import OutboxContract
from tests.contract.profile_store import ProfilesContract
from tests.contract.races import RacesContract
from tests.contract.registry_store import RegistryContract
from tests.contract.relay_store import CoordinatorContract, RelaysContract
from tests.contract.removed_parents_store import RemovedParentsStoreContract
from tests.contract.renew_store import RenewStoreContract
from tests.contract.spill import SpillContract
from tests.contract.state_store import RepairsContract, StateStoreContract
from tests.contract.stores import Stores, in_memory
from tests.contract.tag_store import TagStoreContract
from tests.contract.tallies import CountersContract
from tests.contract.tombstone_store import TombstoneStoreContract
from tests.contract.upstream import UpstreamContract
from tests.core.replication.relay_scene import Net, Node, Time
from tests.core.scene import FEED, op
from tests.fakes import MemorySpill


@pytest.fixture
def stores() -> Stores:
    return in_memory()


class TestLog(LogStoreContract): ...


class TestRenewals(RenewStoreContract): ...


class TestState(StateStoreContract): ...


class TestRepairs(RepairsContract): ...


class TestRemovedParents(RemovedParentsStoreContract): ...


class TestFollowers(FollowerStoreContract): ...


class TestClaims(ClaimStoreContract): ...


class TestProfiles(ProfilesContract): ...


class TestTombstones(TombstoneStoreContract): ...


class TestKeys(KeysContract): ...


class TestCounters(CountersContract): ...


class TestTags(TagStoreContract): ...


class TestOperatorDocuments(OperatorDocumentsContract): ...


class TestConnections(ConnectionStoreContract): ...


class TestInbox(InboxContract): ...


class TestWatches(SubscriptionStoreContract): ...


class TestRegistry(RegistryContract): ...


class TestOutbox(OutboxContract): ...


class TestNumbers(NumbersContract): ...


class TestConsumers(ConsumersContract): ...


class TestRelays(RelaysContract): ...


class TestCoordinator(CoordinatorContract): ...


class InMemory:
    """Implements `Told`."""

    def __init__(self) -> None:
        self.url, net = "http://one.example/feeds/main", Net(Time())
        self.upstream, self._node = net, Node(net, self.url)

    def post(self, kind: str, *ids: str, event: str = "update") -> None:
        self._node.scene.post(*(op(each, event, type=kind) for each in ids))

    def projected(self) -> None:
        self._node.scene.project()

    def raise_floor(self, page: int) -> None:
        self._node.scene.log.raise_floor(FEED, page)


class TestUpstream(UpstreamContract):
    @pytest.fixture
    def told(self) -> InMemory:
        return InMemory()


class TestRaces(RacesContract): ...


class TestSpill(SpillContract):
    @pytest.fixture
    def spill(self) -> MemorySpill:
        return MemorySpill()
