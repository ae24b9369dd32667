"""A feed and an agent before it, for each module or test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.agent.processes import Agent, Running, Target, running


@pytest.fixture
def feed() -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Agent]]:
    """Yield one of each, for the tests that leave them unchanged."""
    folder = tmp_path_factory.mktemp("agent")
    with running() as found, Agent(found.target.url, folder) as agent:
        yield found.target, agent


@pytest.fixture
def agent(pair: tuple[Target, Agent]) -> Agent:
    return pair[1]


@pytest.fixture
def target(pair: tuple[Target, Agent], agent: Agent) -> Target:
    agent.until(lambda status: status["queue_size"] == 0)
    pair[0].forget()
    return pair[0]
