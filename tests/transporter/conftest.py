"""One twin for every row of transporter's checklist, and a feed of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tidings.local.running import Twin

from tests.transporter.pipe import Pipe

FEEDS = [f"p{number:02}" for number in range(60)]


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
