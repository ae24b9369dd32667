"""`tidings agent` on the command line: the errors at its start, and its help."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.unit.agent.processes import Agent
from tidings.agent import command


def test_W22_help_shows_no_secret() -> None:
    """The variable is named, and its value is not shown as the default: people paste help."""
    told = CliRunner().invoke(command.agent, ["--help"], env={"TIDINGS_PASSWORD": "swordfish"})

    assert "Examples:" in told.output
    assert "Exit codes:" in told.output
    assert "TIDINGS_PASSWORD" in told.output
    assert "swordfish" not in told.output


def test_one_agent_a_folder_and_a_port(agent: Agent, tmp_path: Path) -> None:
    """A second one gets an error of one sentence."""
    folder = agent.folder / "queue"
    address = agent.url.removeprefix("http://")

    assert _status_of(folder, "127.0.0.1:0") == (
        f"tidings agent: another agent uses the queue folder {folder};"
        " give each agent its own --queue-dir\n"
    )
    assert _status_of(tmp_path, address) == (
        f"tidings agent: cannot listen on {address}: address already in use\n"
    )
    (tmp_path / "file").touch()
    assert "cannot use the queue folder" in _status_of(tmp_path / "file/below", "127.0.0.1:0")


def _status_of(folder: Path, address: str) -> str:
    options = ["--url", "http://127.0.0.1:1", "--queue-dir", str(folder), "--listen", address]
    done = CliRunner().invoke(command.agent, options)
    assert done.exit_code == 1
    return done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--url", "ftp://h"],
        ["--url", "http://h", "--feed", "A B"],
        ["--url", "http://h", "--listen", "h:p"],
        ["--url", "http://h", "--max-queued-events", "0"],
        [],
    ],
)
def test_wrong_usage(options: list[str]) -> None:
    """The exit code is 2, before the agent accepts anything."""
    done = CliRunner().invoke(command.agent, options)

    assert done.exit_code == 2
    assert "Error: " in done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:8042", ("127.0.0.1", 8042)),
        (":8042", ("0.0.0.0", 8042)),
        ("localhost", ("localhost", 8042)),
        ("[::1]:9", ("::1", 9)),
        ("[::1]", ("::1", 8042)),
    ],
)
def test_addresses_to_listen_on(text: str, found: tuple[str, int]) -> None:
    """With or without a port, and as oplog wrote every address."""
    (option,) = (each for each in command.agent.params if each.name == "listen")
    ctx = click.Context(command.agent)

    assert option.callback is not None
    assert option.callback(ctx, option, text) == found
