"""Unit tests see no network, and their random examples are the same in every run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.unit.scene import Scene

settings.register_profile("unit", deadline=None, derandomize=True, database=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def no_network(socket_disabled: None) -> Iterator[None]:
    """Whoever opens a socket fails."""
    yield


@pytest.fixture
def scene() -> Scene:
    """A feed of its own for each test."""
    return Scene()
