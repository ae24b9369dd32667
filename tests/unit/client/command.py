"""`tidings` as a process."""

from __future__ import annotations

import subprocess
import sys

TIDINGS = [sys.executable, "-m", "tidings.client.cli.main"]
WITHIN_S = 180.0  # on a machine that is busy


def tidings(
    *words: str, stdin: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command with *stdin*; return its output and its exit code."""
    return subprocess.run(
        [*TIDINGS, *words], input=stdin, capture_output=True, text=True, timeout=WITHIN_S, env=env
    )
