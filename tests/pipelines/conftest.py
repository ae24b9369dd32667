"""The server and the feeds of named consumers, and one PostgreSQL for all pipelines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines import server
from tests.transporter.conftest import host, pipe, spare

__all__ = ["host", "pipe", "spare"]


@pytest.fixture(scope="package")
def database() -> Iterator[str]:
    """The address of a PostgreSQL that is started for the tests."""
    if server.binaries() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as folder, server.running(Path(folder)) as address:
        yield address
