"""One twin and one PostgreSQL for all pipelines, and a feed of its own for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidings.local.running import Twin

from tests.pipelines import server
from tests.transporter.pipe import Pipe

FEEDS = [f"f{number:02}" for number in range(40)]


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with Twin("--feeds", ",".join(["main", *FEEDS])) as running:
        yield running


@pytest.fixture(scope="package")
def spare(twin: Twin) -> Iterator[str]:
    return iter(FEEDS)


@pytest.fixture
def pipe(twin: Twin, spare: Iterator[str]) -> Iterator[Pipe]:
    """On a feed that no other test has touched."""
    with Pipe(twin.port, next(spare)) as made:
        yield made


@pytest.fixture(scope="package")
def database() -> Iterator[str]:
    """The address of a PostgreSQL that is started for the tests."""
    if server.binaries() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as folder, server.running(Path(folder)) as address:
        yield address
