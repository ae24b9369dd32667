"""One PostgreSQL and one server for all tests here; each has a table and a feed of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.unit.pipelines.conftest import database, postgresql_url
from tidings.server.running import Server

__all__ = ["database", "postgresql_url"]

FEEDS = [f"t{number}" for number in range(20)]
_UNUSED, _TABLES = iter(FEEDS), count()


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    with Server("--feeds", ",".join(FEEDS)) as running:
        yield running


@pytest.fixture
def feed() -> str:
    """Return a feed of the server that no other test has."""
    return next(_UNUSED)


@pytest.fixture
def table() -> str:
    """Return a name of a table that no other test has."""
    return f"videos_{next(_TABLES)}"
