"""The stores on SQLite keep the contracts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.documents import Documents
from tidings.server.sqlite.followers import SqliteCounters, SqliteFollowers
from tidings.server.sqlite.log import SqliteClaims, SqliteLog
from tidings.server.sqlite.settings import (
    SqliteConsumers,
    SqliteCoordinator,
    SqliteKeys,
    SqliteOperatorDocuments,
    SqliteProfiles,
    SqliteRelays,
)
from tidings.server.sqlite.state import (
    SqliteRemovedParents,
    SqliteState,
    SqliteTags,
    SqliteTombstones,
)

from tests.contract.stores import Stores, in_memory

# The same classes as for the fakes, with the stores of this module.
from tests.contract.test_memory import (  # noqa: F401
    TestClaims,
    TestConsumers,
    TestCoordinator,
    TestCounters,
    TestFollowers,
    TestKeys,
    TestLog,
    TestNumbers,
    TestOperatorDocuments,
    TestProfiles,
    TestRaces,
    TestRelays,
    TestRemovedParents,
    TestRenewals,
    TestRepairs,
    TestState,
    TestTags,
    TestTombstones,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """On one file. What dies with its process, and outboxes, which are tables, is in memory."""
    database, memory = Database(tmp_path / "feed.db"), in_memory()
    log, consumers = SqliteLog(database), SqliteConsumers(database)
    yield Stores(
        log,
        SqliteState(database),
        SqliteRemovedParents(database),
        SqliteFollowers(database),
        SqliteClaims(database),
        SqliteProfiles(partial(Documents, database)),
        SqliteCounters(database),
        memory.connections,
        memory.inbox,
        memory.watches,
        SqliteTags(database),
        SqliteOperatorDocuments(partial(Documents, database)),
        memory.registry,
        memory.outbox,
        consumers,
        consumers,
        SqliteRelays(database, log),
        SqliteCoordinator(database),
        log,
        SqliteKeys(partial(Documents, database)),
        memory.key_counts,
        memory.key_holds,
        log,
        SqliteTombstones(database),
    )
    database.close()
