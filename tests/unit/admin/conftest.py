"""One twin for what an operator does to the tables of a feed that is at work."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.loading import machine
from tests.compat.oplog.feed import Feed, ask
from tests.compat.oplog.wire import until
from tests.twin import Twin
from tests.twin.store import PREFIX

LISTENERS = 3
DESERTED = "deserted"
FEEDS = [f"f{number}" for number in range(10)]


@dataclass(frozen=True, slots=True)
class Deserted:
    """A feed with listeners whose process was killed at *killed_s*, by the monotonic clock."""

    feed: Feed
    killed_s: float


@pytest.fixture(scope="package")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="package")
def hosted(data: Path) -> Iterator[tuple[Twin, Deserted]]:
    """Yield the twin and the killed process; it is killed first, so that its test needs no long
    wait."""
    with Twin("--feeds", ",".join(["main", DESERTED, *FEEDS]), data=data) as running:
        yield running, _desert(running)


@pytest.fixture(scope="package")
def twin(hosted: tuple[Twin, Deserted]) -> Twin:
    return hosted[0]


@pytest.fixture(scope="package")
def deserted(hosted: tuple[Twin, Deserted]) -> Deserted:
    return hosted[1]


@pytest.fixture(scope="package")
def spare(twin: Twin) -> Iterator[str]:
    return iter(FEEDS)


def _desert(twin: Twin) -> Deserted:
    """Kill what serves the streams of *twin* under listeners; return when it is back."""
    feed = Feed(twin.port, DESERTED)
    listeners = [feed.open() for _ in range(LISTENERS)]
    until(lambda: feed.status()["clients"] == feed.status()["connections"] == LISTENERS)

    processes = {machine.called(pid): pid for pid in machine.family(twin.pid)}
    os.kill(processes[f"{PREFIX}stream"], signal.SIGKILL)
    killed_s = time.monotonic()
    for listener in listeners:
        listener.close()
    until(lambda: ask(feed.port, "GET", feed.path).status == 406)  # a new process refuses us
    return Deserted(feed, killed_s)
