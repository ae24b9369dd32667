"""Find the dump: files, a folder, a pattern, S3, or stdin."""

from __future__ import annotations

import glob
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tidings.sync import files

STDIN = "-"
_GZIP = b"\x1f\x8b"
_SPECIAL = re.compile(r"([][{}*?\\,^])")
_NAME_CHARS = 100  # of a copy's name: recognizable, and short enough for any file system
_ODD = re.compile(r"[^A-Za-z0-9_.-]")


class NoDump(Exception):
    """No file matches; the message says which ones are missing."""


@dataclass(frozen=True, slots=True)
class Taken:
    """
    The input for Spark, of *size* bytes.

    If several lines describe an object, those in the path that sorts last win. *names* maps the
    path of a copy to its original.
    """

    paths: list[str]
    size: int
    names: Mapping[str, str] = field(default_factory=dict)


def taken(dump: str, stdin: IO[bytes], folder: Path) -> Taken:
    """
    Return *dump* for a Spark on this machine.

    Stdin and objects of S3 are copied to *folder*, because they are read again if they have errors.

    Raises:
        NoDump: no such file exists.
        BotoCoreError, ClientError: S3 does not respond, or rejects the request.
    """
    if dump == STDIN:
        path = _spooled(stdin, folder)
        return Taken([_exactly(str(path))], path.stat().st_size, {str(path): "stdin"})
    if files.is_on_s3(dump):
        return _fetched(dump, folder)
    listed = _here(dump)
    return Taken(_paths(dump, listed), sum(each.size for each in listed))


def in_place(dump: str) -> list[str]:
    """
    Return the addresses in *dump* for a Spark that reads S3 itself: a file or a folder.

    Raises:
        NoDump, BotoCoreError, ClientError: see `taken`.
    """
    return _paths(dump, files.named(dump))


def uploaded(dump: str, stdin: IO[bytes], folder: Path, to: str) -> str:
    """
    Copy *dump* to the folder *to* on S3, with the same order of names; return its address.

    Raises:
        NoDump, BotoCoreError, ClientError: see `taken`.
    """
    if dump == STDIN:
        listed = files.named(str(_spooled(stdin, folder)))
    else:
        listed = files.named(dump) if files.is_on_s3(dump) else _here(dump)
    if not listed:
        raise NoDump(f"{dump}: no such file")
    for number, each in enumerate(listed):
        files.put(each.address, f"{to}{_numbered(number, each.address)}")
    return to if len(listed) > 1 else f"{to}{_numbered(0, listed[0].address)}"


def _here(dump: str) -> list[files.File]:
    names = [dump] if Path(dump).exists() else sorted(glob.glob(dump))
    return [each for name in names for each in files.named(name)]


def _paths(dump: str, listed: list[files.File]) -> list[str]:
    if not listed:
        raise NoDump(f"{dump}: no such file")
    addresses = (each.address for each in listed)
    return [_exactly(at if files.is_on_s3(at) else str(Path(at).resolve())) for at in addresses]


def _fetched(dump: str, folder: Path) -> Taken:
    """Copy the objects to numbered files in the order of their keys, which may be invalid names."""
    listed = files.named(dump)
    names = {
        str(folder.resolve() / _numbered(number, each.address)): each.address
        for number, each in enumerate(listed)
    }
    for path, address in names.items():
        files.fetch(address, Path(path))
    paths = _paths(dump, [files.File(path, 0) for path in names])
    return Taken(paths, sum(each.size for each in listed), names)


def _numbered(number: int, address: str) -> str:
    """Return a numbered name with the end of the original, for the suffix of gzip."""
    return f"{number:09}-{_ODD.sub('_', address.rpartition('/')[2])[-_NAME_CHARS:]}"


def _spooled(stdin: IO[bytes], folder: Path) -> Path:
    start = stdin.read(len(_GZIP))
    path = folder.resolve() / ("stdin.gz" if start == _GZIP else "stdin")
    with path.open("wb") as file:
        file.write(start)
        shutil.copyfileobj(stdin, file)
    return path


def _exactly(path: str) -> str:
    """Escape the characters that Spark would interpret as a pattern."""
    return _SPECIAL.sub(r"\\\1", path)
