"""Where the dump comes from: files, a folder, a pattern, or stdin."""

from __future__ import annotations

import glob
import re
import shutil
from pathlib import Path
from typing import IO

STDIN = "-"
_GZIP = b"\x1f\x8b"
_SPECIAL = re.compile(r"([][{}*?\\,^])")


class NoDump(Exception):
    """The message says which files there are none of."""


def paths_of(dump: str, stdin: IO[bytes], folder: Path) -> list[str]:
    """
    What Spark is given for *dump*, in the order in which later lines win. Stdin is kept in
    *folder*, because it is read more than once if something is wrong with it.

    Raises:
        NoDump: there is no such file.
    """
    if dump == STDIN:
        return [_spooled(stdin, folder)]
    found = [dump] if Path(dump).exists() else sorted(glob.glob(dump))
    files = [each for name in found for each in _files(Path(name))]
    if not files:
        raise NoDump(f"{dump}: no such file")
    return [_exactly(path) for path in files]


def _files(path: Path) -> list[Path]:
    """A folder stands for the files in it; hidden ones and markers like `_SUCCESS` are left."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.is_file() and each.name[0] not in "._")


def _spooled(stdin: IO[bytes], folder: Path) -> str:
    start = stdin.read(len(_GZIP))
    path = folder / ("stdin.gz" if start == _GZIP else "stdin")
    with path.open("wb") as file:
        file.write(start)
        shutil.copyfileobj(stdin, file)
    return _exactly(path)


def _exactly(path: Path) -> str:
    """Spark would take some characters of a name for a pattern."""
    return _SPECIAL.sub(r"\\\1", str(path.resolve()))
