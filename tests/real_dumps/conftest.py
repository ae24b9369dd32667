"""The target of the command: a twin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.sync import feeds
from tests.unit.sync.conftest import feed, pytest_itemcollected
from tidings.twin import Twin

__all__ = ["feed", "pytest_itemcollected"]


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with feeds.twin() as running:
        yield running
