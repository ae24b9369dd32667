"""One twin for all tests here, and a feed of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tidings.local.running import Twin

from tests.sync import feeds


def pytest_itemcollected(item: pytest.Function) -> None:
    """A twin needs Java."""
    if "twin" in item.fixturenames:
        item.add_marker("java")


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with feeds.twin() as running:
        yield running


@pytest.fixture
def feed() -> str:
    """A feed of the twin that no other test has."""
    return next(feeds.UNUSED)
