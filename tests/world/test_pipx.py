"""`pipx run` with the wheel, the command line without an installation."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra import build_release, builds
from tests.compat.oplog.feed import Feed, op
from tidings.server.running import Server

pytestmark = pytest.mark.pipx
RUN_S = 300.0  # pipx creates two environments and installs the dependencies


def test_the_command_line_runs_without_an_installation(
    server: Server, feed: Feed, tmp_path: Path
) -> None:
    """The dependencies have the versions of the lock, which pip fetches."""
    build_release.wheel(tmp_path, 1_795_000_000)
    (wheel,) = tmp_path.iterdir()
    versions = tmp_path / "versions.txt"
    versions.write_text("\n".join(builds.lock()))
    before, posted = feed.post(op("x31"), op("x32"))
    command = ["pipx", "run", "--spec", str(wheel), "tidings", "tail", "--feed", feed.name]
    command += ["--url", server.url, "--from", before, "--json", "--count", "1"]
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PIP_CONSTRAINT": str(versions)}

    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
    )

    assert done.returncode == 0, done.stderr
    assert f'"{posted}"' in done.stdout
