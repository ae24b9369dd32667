"""One host for every row of oplog's contract, and a feed of its own for each test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.compat.oplog.feed import Feed, feed_of
from tests.compat.oplog.wire import Ended
from tests.hosts import wanted
from tests.unit.core.scene import Scene
from tidings.server.running import Server

FEEDS = [f"o{number:02}" for number in range(80)]
QUIET, SHARED = "quiet", "shared"


class Heartbeats(threading.Thread):
    """Listens to a feed on which nothing happens from the start, and notes when it is spoken to."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(daemon=True)
        self._listener = feed.open()
        self.moments = [time.monotonic()]

    @property
    def raw(self) -> bytes:
        return self._listener.raw

    def run(self) -> None:
        received = 0
        while True:
            try:
                self._listener.silent(1.0)
            except (Ended, OSError):
                return
            if len(self.raw) > received:
                received = len(self.raw)
                self.moments.append(time.monotonic())


@pytest.fixture(scope="package")
def host(request: pytest.FixtureRequest) -> Iterator[Server]:
    feeds = ",".join(["main", QUIET, SHARED, *FEEDS])
    with wanted(request.config)("--feeds", feeds, "--allow-origin", "*") as running:
        yield running


@pytest.fixture(scope="package")
def heartbeats(host: Server) -> Heartbeats:
    """Started with the host, so that the test that waits for one finds it nearly due."""
    listening = Heartbeats(feed_of(host, QUIET))
    listening.start()
    return listening


@pytest.fixture(scope="package")
def spare(host: Server, heartbeats: Heartbeats) -> Iterator[str]:
    return iter(FEEDS)


@pytest.fixture
def feed(host: Server, spare: Iterator[str]) -> Feed:
    """One that no other test has touched."""
    return feed_of(host, next(spare))


@pytest.fixture
def shared(host: Server) -> Feed:
    """A feed for tests that tolerate operations of other tests."""
    return feed_of(host, SHARED)


@pytest.fixture
def scene() -> Scene:
    """A feed in memory, of its own for each test."""
    return Scene()
