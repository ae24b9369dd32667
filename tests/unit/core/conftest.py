"""Unit tests see no network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.core.scene import Scene


@pytest.fixture(autouse=True)
def no_network(socket_disabled: None) -> Iterator[None]:
    """Make every test fail that opens a socket."""
    yield


@pytest.fixture
def scene() -> Scene:
    """Return a feed of its own for each test."""
    return Scene()
