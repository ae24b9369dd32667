"""One stage in LocalStack for all tests that are marked `localstack`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.localstack import lane
from tests.localstack.stage import Stage
from tidings.sync.feed import DynamoDBFeed, on_tables


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Created from nothing, with its steps on the terminal: it takes a minute or more."""
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    started = time.monotonic()

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(f"{time.monotonic() - started:6.1f} s  {line}")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves no process behind
    try:
        with lane.running(say) as made:
            say("ready")
            yield made
            say("stopping")
    except lane.EXPECTED_ERRORS as problem:
        pytest.exit(str(problem), returncode=1)


@pytest.fixture(scope="session")
def place_of(stage: Stage) -> Callable[[str], DynamoDBFeed]:
    """A feed of the stage by its name, read as an operator's commands read it."""
    told = stage.function("ingest")["Environment"]["Variables"]
    tables = {
        name: stage.named(told[f"TIDINGS_{name.upper()}_TABLE"]["Ref"], None)
        for name in ("log", "state", "control")
    }
    return lambda feed: on_tables(feed, **tables)


@pytest.fixture(scope="session")
def feed(place_of: Callable[[str], DynamoDBFeed]) -> DynamoDBFeed:
    return place_of("main")
