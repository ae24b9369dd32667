"""The command `tidings`, as an operator types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "tidings"


class CommandFailed(Exception):
    """It ended with an error; the message is what it said."""


def run(variables: Mapping[str, str], *arguments: str, stdin: str = "") -> str:
    """
    What it printed; *variables* lead it to an account, *stdin* is its input.

    Raises:
        CommandFailed: see there.
    """
    done = subprocess.run(
        [str(PROGRAM), *arguments],
        env=os.environ | dict(variables),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandFailed(f"tidings {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
