"""Builds by several processes, such as tests that run at once, take turns."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Be the only one to build in *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel gives it back, however this process ends
        yield


def replace(file: Path, content: bytes) -> None:
    """Write *file* so that who reads it meanwhile has the old one or the new one, whole."""
    made = file.with_name(f"{file.name}.{os.getpid()}")
    made.write_bytes(content)
    made.replace(file)
