"""A fork of `tests/warm.py` is the process that an ordinary start would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.unit.client.command import TIDINGS, WITHIN_S, tidings
from tidings.server.running import Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no forks")


def imports_nothing(pid: int) -> bool:
    """Return True if the process *pid* is a fork."""
    return warm.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_fork_has_the_arguments_environment_and_folder_of_its_start(tmp_path: Path) -> None:
    config = tmp_path / "config"
    environment = {**os.environ, "XDG_CONFIG_HOME": str(config)}
    for _ in range(2):  # the first start is an ordinary one
        tidings("--version")

    saved = tidings("context", "set", "here", "--url", "http://localhost:1", env=environment)
    refused = tidings("context", "set", "here", "--nothing")

    assert saved.returncode == 0, saved.stderr
    assert [*config.rglob("*.json")] != []
    assert refused.returncode == 2
    assert "--nothing" in refused.stderr
    command = [*TIDINGS, "context", "list"]
    listed = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert "here" in listed.stdout


def test_the_second_server_is_a_fork_that_a_signal_ends() -> None:
    with Server():
        pass

    with Server() as server:
        assert imports_nothing(server.pid)
        assert server.stop() == 0
    with Server() as server:
        os.kill(server.pid, signal.SIGINT)
        assert server.wait() == 0
    with Server() as server:
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
