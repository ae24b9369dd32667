"""Operations that the feed refuses for good, kept for a person: one in JSON a line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

NAME = "refused.ndjson"
BYTES_MAX = 64 * 1024 * 1024  # a person looks at the first ones; the rest is only counted


def keep(folder: Path, lines: Sequence[bytes]) -> bool:
    """Append *lines*, safe from the loss of power; False: the file is full."""
    with (folder / NAME).open("ab") as file:
        if file.tell() >= BYTES_MAX:
            return False
        file.write(b"".join(line + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    return True
