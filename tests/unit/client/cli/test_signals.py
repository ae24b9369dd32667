"""Signals at any moment of a command's life: no traceback, and the exit codes of shells."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.client.command import WITHIN_S
from tidings.pipelines.templates import render_file

NOWHERE = ("--url", "http://127.0.0.1:1")
TIMES = 3  # of each command and signal, at other moments
LONGEST_S = 0.5  # of the imports of a command on a machine that is not busy
FILE = "pipeline.py"


def catches(process: subprocess.Popen[str], number: int) -> bool:
    """Return True if the process has a handler of the signal; Python has none of SIGTERM."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [
        ("pipeline", "run", FILE, "--json"),
        ("serve", "--data", "served", "--port", "0"),
        ("tail", *NOWHERE),
        ("status", *NOWHERE),
        ("sync", "table", "host=/nowhere", "t", *NOWHERE),
    ],
    ids=" ".join,
)
def test_a_signal_at_any_moment(words: Sequence[str], number: int, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(render_file("p", NOWHERE[1], "main", (), ("ndjson", "parquet")))
    chance = random.Random(f"{words}{number}")
    for _ in range(TIMES):
        with subprocess.Popen(
            [sys.executable, "-m", "tidings", *words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            while not catches(process, signal.SIGTERM):
                assert process.poll() is None
            time.sleep(chance.random() * LONGEST_S)
            process.send_signal(number)
            _, error = process.communicate(timeout=WITHIN_S)
        assert "Traceback" not in error and "KeyboardInterrupt" not in error, error
        assert process.returncode in (0, 1, 128 + number, -number), error
