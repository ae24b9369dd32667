"""Every store keeps its contract, on every engine that has one."""

# ruff: noqa: F401 - pytest finds the classes here

from __future__ import annotations

from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path

from tests.contract.claim_store import TestClaims
from tests.contract.connection_store import TestConnections, TestInbox, TestSubscriptions
from tests.contract.consumer_store import TestConsumers
from tests.contract.counter_store import TestCounters
from tests.contract.document_store import TestOperatorDocuments
from tests.contract.due_store import TestDueFeeds
from tests.contract.erasure_store import TestErasures, TestRewrites
from tests.contract.feed_store import TestFeeds
from tests.contract.follower_store import TestFollowers
from tests.contract.key_store import TestKeys
from tests.contract.log_store import TestLog, TestNumbers, TestRenewals
from tests.contract.outbox_store import TestOutbox
from tests.contract.profile_store import TestProfiles
from tests.contract.races import TestRaces
from tests.contract.record_store import TestRecords
from tests.contract.registry_store import TestRegistry
from tests.contract.relay_store import TestCoordinator, TestRelays
from tests.contract.removed_parents_store import TestRemovedParents
from tests.contract.state_store import TestRepairs, TestState, TestSums, TestTombstones
from tests.contract.stream_store import TestStreams
from tests.contract.tag_store import TestTags


def test_every_contract_is_tried() -> None:
    """Its class is imported above, or no store is held to it."""
    names = [path.stem for path in Path(__file__).parent.glob("*_store.py")]
    found = {
        name
        for module in (import_module(f"tests.contract.{name}") for name in names)
        for name, each in getmembers(module, isclass)
        if name.startswith("Test") and each.__module__ == module.__name__
    }

    assert len(found) > 15
    assert sorted(found - {*globals()}) == []
