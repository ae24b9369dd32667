"""One host for every row of transporter's checklist, and a feed of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.transporter.pipe import Pipe
from tests.hosts import wanted
from tidings.server.running import Server

FEEDS = [f"p{number:02}" for number in range(60)]


@pytest.fixture(scope="package")
def host(request: pytest.FixtureRequest) -> Iterator[Server]:
    with wanted(request.config)("--feeds", ",".join(["main", *FEEDS])) as running:
        yield running


@pytest.fixture(scope="package")
def spare(host: Server) -> Iterator[str]:
    return iter(FEEDS)


@pytest.fixture
def pipe(host: Server, spare: Iterator[str]) -> Iterator[Pipe]:
    """On a feed that no other test has touched."""
    with Pipe(host.port, next(spare)) as made:
        yield made
