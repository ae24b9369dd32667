"""The ways from oplog and to a chained feed, and docs/guides/CLIENT.md, line by line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.server import processes
from tidings.server.running import Server

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WITHIN_S = 180.0
_SECTION = re.compile(r"^## Moving from oplog\n.*?^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_TIMED_OUT = 28  # curl: --max-time has passed, which is how a stream is left


class Shell:
    """Runs lines in *folder* as a person would, on ports of its own; ends what they started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {"8042": processes.free_port(), "8043": processes.free_port()}
        self._background: list[subprocess.Popen[str]] = []

    def run(self, line: str) -> str:
        """Return the output of *line*; it may continue in the background."""
        for port, own in self._ports.items():
            line = re.sub(rf"127\.0\.0\.1([:/]){port}", rf"127.0.0.1\g<1>{own}", line)
        if " serve " in line:
            line = line.replace(" serve ", f" serve --port {self._ports['8042']} ")
        command, _, comment = line.partition("   # ")
        assert comment, line
        if command.rstrip().endswith("&"):
            self._background.append(self._start(command.rstrip().removesuffix("&")))
            return ""
        done = self._start(command)
        said, _ = done.communicate(timeout=WITHIN_S)
        assert done.returncode in (0, _TIMED_OUT if "--max-time" in command else 0), command
        return said

    def close(self) -> None:
        for process in reversed(self._background):
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=WITHIN_S)

    def _start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._folder,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path)
    yield found
    found.close()


@pytest.mark.curl
def test_moving_from_oplog_in_ten_lines(shell: Shell, tmp_path: Path) -> None:
    """Each line runs, in order; at the end every producer and every consumer has moved."""
    found = _SECTION.search((ROOT / "docs/guides/MOVING.md").read_text())
    assert found is not None
    lines = found[1].strip().splitlines()
    said = [shell.run(line) for line in lines]

    assert len(lines) == 10
    assert json.loads(said[2])["status"]
    assert all(name in said[8] for name in ("video/x32", "user/ann"))
    assert (tmp_path / "seen").read_text() != "545b55c7f095528dd0f3863c"
    events = re.findall(r"^event: (\w+)$", said[9], re.MULTILINE)
    assert (events[0], events.count("live")) == ("reset", 1)
    assert '"ref":"http://api/video/x32"' in said[9]


def test_the_python_of_the_client_page(tmp_path: Path) -> None:
    """Each block runs unchanged but for the port; the one that posts is first, an erasure last.

    The feed that is deleted is none of the others.
    """
    blocks = _PYTHON.findall((ROOT / "docs/guides/CLIENT.md").read_text())
    ends = ("Feeds", "Erasures")
    blocks = sorted(reversed(blocks), key=lambda block: [name in block for name in reversed(ends)])
    with Server() as server:
        said = [
            subprocess.run(
                [sys.executable, "-c", block.replace("http://127.0.0.1:8042", server.url)],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=True,
                timeout=WITHIN_S,
            ).stdout
            for block in blocks
        ]

    assert re.fullmatch(r"\['[0-9a-f]{24}'\]\n", said[0])
    assert said[1:3] == ["complete: 1 objects\n"] * 2
    assert said[3] == "['main', 'test-17']\ndeleting deleting\n"
    assert re.fullmatch(r"[0-9a-f]{24} pending\n", said[4])


SCRIPT_WITHIN_S = 400.0  # three starts, on a machine that is busy
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
            shell.wait(SCRIPT_WITHIN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing was started, or all has ended
                os.killpg(shell.pid, signal.SIGTERM)
        output.seek(0)
        lines = output.read().splitlines()
    assert lines[-1] == "done", lines
    return lines
