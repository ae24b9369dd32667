"""A server for the tests of one file, nginx in front of it, and a feed for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.oplog.feed import Feed
from tests.world.nginx import Nginx
from tidings.server.running import Server

FEEDS = [f"w{number:02}" for number in range(40)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--feeds", ",".join(["main", *FEEDS])) as running:
        yield running


@pytest.fixture(scope="module")
def nginx(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with Nginx(tmp_path_factory.mktemp("nginx"), server.port) as running:
        yield running


@pytest.fixture(scope="module")
def spare() -> Iterator[str]:
    return iter(FEEDS)


@pytest.fixture
def feed(server: Server, spare: Iterator[str]) -> Feed:
    """One that no other test has used."""
    return Feed(server.port, next(spare))
