"""The commands of CHAINING.md and GROWING.md, as the one script that each of them is."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tidings.server import processes

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WITHIN_S = 400.0  # three starts, on a machine that is busy
_SCRIPT = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.curl
def test_a_copy_outlives_its_master_and_goes_on(tmp_path: Path) -> None:
    """Chained, left alone by a kill, and read on when the master is back."""
    lines = _lines_of("docs/guides/CHAINING.md", tmp_path)
    assert sum("video/x32" in line for line in lines) == 4  # posted, and received three times
    assert sum("video/x33" in line for line in lines) == 2
    assert any(line.split() == ["status", "running"] for line in lines)


@pytest.mark.curl
def test_a_feed_moves(tmp_path: Path) -> None:
    """From a server to another one, which takes the place of the stage, with its log."""
    lines = _lines_of("docs/guides/GROWING.md", tmp_path)
    assert sum("video/x32" in line for line in lines) == 3
    assert sum("video/x33" in line for line in lines) == 2
    assert "main accepts posts after page 2" in lines


def _lines_of(page: str, folder: Path) -> list[str]:
    """Return the output of the script of *page*."""
    (script,) = _SCRIPT.findall((ROOT / page).read_text())
    for port in ("8042", "8052"):
        script = script.replace(port, str(processes.free_port()))
    with tempfile.TemporaryFile("w+") as output:  # the started processes would hold a pipe open
        shell = subprocess.Popen(
            ["bash", "-e", "-c", f"{script}\necho done"],
            cwd=folder,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
            stdout=output,
            start_new_session=True,
        )
        try:
            shell.wait(WITHIN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing was started, or all has ended
                os.killpg(shell.pid, signal.SIGTERM)
        output.seek(0)
        lines = output.read().splitlines()
    assert lines[-1] == "done", lines
    return lines
