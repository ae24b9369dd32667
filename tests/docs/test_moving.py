"""The way from oplog in MOVING.md, line by line, and the Python of docs/guides/CLIENT.md."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
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
