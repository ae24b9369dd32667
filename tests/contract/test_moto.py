"""The stores on DynamoDB keep the contracts, against an emulation in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.claim_store import ClaimStoreContract
from tests.contract.connection_store import (
    ConnectionStoreContract,
    InboxContract,
    WatchStoreContract,
)
from tests.contract.consumer_store import ConsumersContract
from tests.contract.departure_store import DepartureStoreContract
from tests.contract.follower_store import FollowerStoreContract
from tests.contract.key_store import KeysContract
from tests.contract.log_store import LogStoreContract
from tests.contract.number_store import NumbersContract
from tests.contract.outbox_store import OutboxContract
from tests.contract.profile_store import ProfilesContract
from tests.contract.registry_store import RegistryContract
from tests.contract.relay_store import CoordinatorContract, RelaysContract
from tests.contract.renew_store import RenewStoreContract
from tests.contract.sheet_store import SheetsContract
from tests.contract.state_store import RepairsContract, StateStoreContract
from tests.contract.stores import Stores, client_in, emulated, on_dynamodb
from tests.contract.tag_store import TagStoreContract
from tests.contract.tallies import TalliesContract
from tests.contract.tombstone_store import TombstoneStoreContract


@pytest.fixture
def stores() -> Iterator[Stores]:
    with emulated(), client_in({}) as client:
        yield on_dynamodb(client)


class TestLog(LogStoreContract): ...


class TestRenewals(RenewStoreContract): ...


class TestState(StateStoreContract): ...


class TestRepairs(RepairsContract): ...


class TestDepartures(DepartureStoreContract): ...


class TestFollowers(FollowerStoreContract): ...


class TestClaims(ClaimStoreContract): ...


class TestProfiles(ProfilesContract): ...


class TestTombstones(TombstoneStoreContract): ...


class TestKeys(KeysContract): ...


class TestTallies(TalliesContract): ...


class TestTags(TagStoreContract): ...


class TestSheets(SheetsContract): ...


class TestConnections(ConnectionStoreContract): ...


class TestInbox(InboxContract): ...


class TestWatches(WatchStoreContract): ...


class TestRegistry(RegistryContract): ...


class TestOutbox(OutboxContract): ...


class TestNumbers(NumbersContract): ...


class TestConsumers(ConsumersContract): ...


class TestRelays(RelaysContract): ...


class TestCoordinator(CoordinatorContract): ...
