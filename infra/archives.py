"""Zip archives whose bytes depend on the names, contents and modes of files alone."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

_LEFT_OUT = ("bin",)
_COMPILED = ("__pycache__", "*.pyc")
_FILE, _PROGRAM = 0o100644, 0o100755
_UNIX = 3
_EARLIEST_S = 315_532_800  # 1980: a zip knows no earlier time


def zipped(folder: Path, time_s: int, below: str = "", *, compiled: bool = False) -> bytes:
    """
    The files of *folder*, in order, all of the time *time_s*, in the archive below *below*; with
    those that Python *compiled* only where that was done for it.
    """
    left_out = _LEFT_OUT if compiled else (*_LEFT_OUT, *_COMPILED)
    when = time.gmtime(max(time_s, _EARLIEST_S))[:6]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(
            _files(folder, left_out), key=lambda each: each.relative_to(folder).as_posix()
        ):
            name = f"{below}{path.relative_to(folder).as_posix()}"
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = _UNIX
            entry.external_attr = (_PROGRAM if path.stat().st_mode & 0o100 else _FILE) << 16
            archive.writestr(entry, path.read_bytes())
    return packed.getvalue()


def _files(folder: Path, left_out: tuple[str, ...]) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(fnmatch(part, out) for part in parts for out in left_out):
            yield path
