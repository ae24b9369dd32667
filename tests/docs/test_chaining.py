"""The commands of CHAINING.md and GROWING.md, as the one script that each of them is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tidings.server import listening

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WITHIN_S = 400.0  # three starts, on a machine that is busy
_SCRIPT = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_a_copy_outlives_its_master_and_goes_on(tmp_path: Path) -> None:
    """Chained, left alone by a kill, and read on when the master is back."""
    said = _lines_of("docs/guides/CHAINING.md", tmp_path)
    assert sum("video/x32" in line for line in said) == 4  # posted, and told three times
    assert sum("video/x33" in line for line in said) == 2
    assert any(line.split() == ["status", "running"] for line in said)


@pytest.mark.java
def test_a_feed_moves(tmp_path: Path) -> None:
    """From a server to a twin, with its log: the page says `tidings local`, for the stage."""
    said = _lines_of("docs/guides/GROWING.md", tmp_path)
    assert sum("video/x32" in line for line in said) == 3
    assert sum("video/x33" in line for line in said) == 2
    assert "main takes posts behind page 2" in said


def _lines_of(page: str, folder: Path) -> list[str]:
    """What the script of *page* says."""
    (script,) = _SCRIPT.findall((ROOT / page).read_text())
    for port in ("8042", "8052"):
        script = script.replace(port, str(listening.free_port()))
    shell = subprocess.Popen(
        ["bash", "-e", "-c", f"{script}\necho done"],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said = _until_done(shell)
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.communicate(timeout=60)
    assert said[-1] == "done"
    return said


def _until_done(shell: subprocess.Popen[str]) -> list[str]:
    """Its lines up to the last; the servers that it started would hold its output open."""
    stuck = signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(int(WITHIN_S))
    said: list[str] = []
    try:
        assert shell.stdout is not None
        for line in shell.stdout:
            said.append(line.rstrip("\n"))
            if said[-1] == "done" or shell.poll() not in (None, 0):
                break
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, stuck)
    return said


def _give_up(number: int, frame: object) -> None:
    raise TimeoutError(f"the script takes longer than {WITHIN_S} s")
