"""One host for every row of Triton's change feed, and a feed of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.triton.wire import ChangeFeed
from tests.hosts import wanted
from tidings.server.running import Server

FEEDS = [f"t{number:02}" for number in range(80)]
RESOURCES = ("vm:nic,alias=/vms", "network:routes,name=/networks", "own:a,b")


@pytest.fixture(scope="package")
def host(request: pytest.FixtureRequest) -> Iterator[Server]:
    declared = [part for resource in RESOURCES for part in ("--resource", resource)]
    with wanted(request.config)(
        "--feeds", ",".join(["main", *FEEDS]), *declared, "--max-age", "3600", "--allow-origin", "*"
    ) as running:
        yield running


@pytest.fixture(scope="package")
def spare(host: Server) -> Iterator[str]:
    return iter(FEEDS)


@pytest.fixture
def feed(host: Server, spare: Iterator[str]) -> ChangeFeed:
    """One that no other test has touched."""
    return ChangeFeed(host.port, next(spare))
