"""The queue's folder: where it is, and that one agent has it."""

from __future__ import annotations

import fcntl
import time
from io import TextIOWrapper
from pathlib import Path

from .options import Problem

LOCK_WAIT_S = 2.0  # a killed agent's receiver flushes for some milliseconds more
_LOOK_EVERY_S = 0.02  # a closer look only costs CPU


def default(home: Path, state_home: str) -> Path:
    """`$XDG_STATE_HOME/tidings/agent`, which is `~/.local/state/tidings/agent` as a rule."""
    base = Path(state_home) if state_home.startswith("/") else home / ".local/state"
    return base / "tidings/agent"


def taken(folder: Path) -> TextIOWrapper:
    """
    Make *folder* and lock it; it is ours until the file is closed or the process has ended.

    Raises:
        Problem: it cannot be made, or another agent has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise Problem(f"cannot use the queue folder {folder}: {error.strerror}") from None
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while not _lock(file):
        if time.monotonic() >= deadline_s:
            file.close()
            raise Problem(f"another agent uses the queue folder {folder}; give each its own")
        time.sleep(_LOOK_EVERY_S)
    return file


def _lock(file: TextIOWrapper) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
