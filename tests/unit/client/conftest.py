"""A feed on loopback for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.client.fake_feed import Running, running


@pytest.fixture
def server() -> Iterator[Running]:
    with running() as found:
        yield found
