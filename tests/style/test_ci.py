"""`.ci/run`: a failure ends it, and so does the time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes

ROOT = Path(__file__).parents[2]
MAKE = """#!/bin/sh
echo "ran $*"
[ "$1" != "$SLOW" ] || exec sleep 60
[ "$1" != "$BROKEN" ]
"""


def ran(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script with a `make` that does nothing, and no packages to install."""
    script = (ROOT / ".ci/run").read_text()
    for name, text in ((".ci/run", script), ("bin/make", MAKE), ("bin/apt-get", "#!/bin/sh\n")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    given = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", **variables}
    command = ["bash", str(folder / ".ci/run")]
    return subprocess.run(command, env=given, text=True, capture_output=True, check=False)


def test_every_lane_runs(tmp_path: Path) -> None:
    """Each is in the table at the end; the first and the last have the machine alone."""
    done = ran(tmp_path)
    lanes = [line[4:] for line in done.stdout.splitlines() if line.startswith("ran ")]

    assert done.returncode == 0, done.stdout + done.stderr
    assert lanes[0] == "setup" and lanes[-1].startswith("bench ")
    assert {"check", "test", "test-deploy", "test-spark"} < {*lanes[1:-1]}
    assert done.stdout.count(" passed") == len(lanes)


def test_a_failure_ends_the_run(tmp_path: Path) -> None:
    """The status is that of the lane; later lanes are named."""
    done = ran(tmp_path, BROKEN="test-twin")

    assert done.returncode == 1
    assert "make test-twin" in done.stdout and "FAILED: exit status 1" in done.stdout
    assert "ran bench" not in done.stdout
    assert "not run: an earlier lane failed" in done.stdout


@pytest.mark.parametrize("limit_s", ["1", "0"])
def test_a_lane_that_hangs_or_has_no_time_fails(tmp_path: Path, limit_s: str) -> None:
    """The run fails before CI ends it without a message; the other lanes are named."""
    done = ran(tmp_path, SLOW="setup", LIMIT_S=limit_s)

    assert done.returncode == 124
    assert "ran test" not in done.stdout and "not run: an earlier lane failed" in done.stdout
    assert "FAILED: stopped" in done.stdout


def test_a_lane_without_its_servers_fails() -> None:
    """It names what to install and runs nothing, so that no test is left out of a green run."""
    command = [sys.executable, "-m", "pytest", "--lane", lanes.DATA, "--collect-only"]
    given = {**os.environ, "PATH": "/nowhere"}
    done = subprocess.run(command, cwd=ROOT, env=given, text=True, capture_output=True, check=False)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "apt-get install mariadb-server" in done.stderr and "fetch Kafka" in done.stderr
    assert done.stderr.endswith("Nothing was run.\n\n")
