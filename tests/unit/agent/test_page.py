"""docs/guides/AGENT.md: its commands work, and it names what there is."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.unit.agent.processes import Agent
from tests.unit.agent.target import running
from tidings.agent import command

PAGE = (Path(__file__).parents[3] / "docs/guides/AGENT.md").read_text()
LINES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M)
    for line in block.split("\n")
]


def test_the_agents_command_is_understood() -> None:
    """Its options exist; the other tests of the agent cover their effects."""
    (line,) = (line for line in LINES if "tidings agent" in line)

    context = command.agent.make_context("agent", shlex.split(line)[2:])

    assert context.params["listen"] == ("127.0.0.1", 8043)


@pytest.mark.curl
def test_the_producers_commands_work(tmp_path: Path) -> None:
    """They run over UDP and HTTP unchanged, except for the port; the page names every field of
    `/status`.
    """
    with running() as feed, Agent(feed.target.url, tmp_path) as agent:
        port = agent.url.rpartition(":")[2]
        for line in LINES:
            if line and "tidings agent" not in line:
                assert "8043" in line
                done = subprocess.run(["bash", "-c", line.replace("8043", port)], timeout=60)
                assert done.returncode == 0, line
        feed.target.until(lambda: sorted(feed.target.ids) == ["x32", "x33"])
        fields = set(agent.status())

    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert fields - named == set()


@pytest.mark.parametrize("option", command.agent.params, ids=lambda option: str(option.name))
def test_options_have_their_help(option: object) -> None:
    """`--help` explains each of them."""
    assert getattr(option, "help", None)
