"""The target of the command: a twin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.twin import Twin
from tests.unit.sync import feeds
from tests.unit.sync.conftest import feed, pytest_itemcollected

__all__ = ["feed", "pytest_itemcollected"]


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with feeds.twin() as running:
        yield running
