"""One PostgreSQL and one server for all tests here; each has a table and a feed of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tidings.server.running import Server

from tests.pipelines import server as postgres

FEEDS = [f"t{number}" for number in range(20)]
_UNUSED, _TABLES = iter(FEEDS), count()


@pytest.fixture(scope="package")
def database() -> Iterator[str]:
    """The address of a PostgreSQL that is started for the tests."""
    if postgres.binaries() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as folder, postgres.running(Path(folder)) as address:
        yield address


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    with Server("--feeds", ",".join(FEEDS)) as running:
        yield running


@pytest.fixture
def feed() -> str:
    """A feed of the server that no other test has."""
    return next(_UNUSED)


@pytest.fixture
def table() -> str:
    """A name of a table that no other test has."""
    return f"videos_{next(_TABLES)}"
