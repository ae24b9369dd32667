"""Files that only their owner may read, whatever the umask: they contain data of a feed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MODE = 0o600


def make(path: Path) -> None:
    """
    Create *path* empty if it is missing, and remove the permissions of other users.

    Call it before SQLite opens the file: SQLite gives its `-wal` and `-shm` files the mode of the
    database. Errors are ignored, because SQLite reports them itself.
    """
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            os.fchmod(handle, MODE)
        finally:
            os.close(handle)


def opener(path: str, flags: int) -> int:
    """Open *path*, for `open(…, opener=…)`. A file that this creates is private to its user."""
    return os.open(path, flags, MODE)
