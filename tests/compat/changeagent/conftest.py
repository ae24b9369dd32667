"""One host for every row of changeagent's contract, and a feed of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.changeagent.client import Changes
from tests.hosts import wanted
from tidings.server.running import Server

FEEDS = [f"a{number:02}" for number in range(90)]


@pytest.fixture(scope="package")
def host(request: pytest.FixtureRequest) -> Iterator[Server]:
    options = ["--allow-origin", "https://ops.example"]
    for setting in ("TIDINGS_HOOKS_PRIVATE=true", "TIDINGS_URL_PREFIX=foo"):
        options += ["--setting", setting]
    with wanted(request.config)("--feeds", ",".join(["main", *FEEDS]), *options) as running:
        yield running


@pytest.fixture(scope="package")
def spare(host: Server) -> Iterator[str]:
    return iter(FEEDS)


@pytest.fixture
def shared(host: Server) -> Changes:
    """One for requests that change nothing."""
    return Changes(host.port, "main")


@pytest.fixture
def changes(host: Server, spare: Iterator[str]) -> Changes:
    """One that no other test has touched."""
    return Changes(host.port, next(spare))
