"""Files that only their user may read, whatever the umask: they hold data of a feed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MODE = 0o600


def make(path: Path) -> None:
    """
    Create *path* empty if it is missing, and take the rights of other users from it.

    For SQLite, which gives its `-wal` and `-shm` files the mode of the database, and which says
    what is wrong if this is not possible.
    """
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            os.fchmod(handle, MODE)
        finally:
            os.close(handle)


def opener(path: str, flags: int) -> int:
    """Open *path*; for `open(…, opener=…)`. A file that it creates belongs to its user alone."""
    return os.open(path, flags, MODE)
