"""Functions shared by the builders of layers, jobs and releases.

The lock (`requirements.lock`, written by `make lock`) contains the hashes of every file of each
package. Deployed packages are installed from wheels of the locked versions, and only if the hash of
the wheel is in the lock. Concurrent builds, such as those of parallel tests, take turns. The bytes
of an archive depend only on the names, contents and modes of its files, and on the given time.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache
from importlib.metadata import version
from pathlib import Path

from infra import ROOT

LOCK = ROOT / "requirements.lock"
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)")


class NotInstalled(Exception):
    """A package cannot be installed.

    The message is the last line of pip's errors, or says that the lock does not have the version.
    """


@cache
def lock(path: Path = LOCK) -> Mapping[str, str]:
    """Return the entries of the lock, which contain the hashes, by `name==version`.

    The names are in lower case, with hyphens.
    """
    entries = re.split(r"\n(?=\S)", path.read_text().strip())
    pins = {_PINNED.match(entry): entry for entry in entries}
    return {encode_name(pin["name"], pin["version"]): entry for pin, entry in pins.items() if pin}


def encode_name(name: str, release: str) -> str:
    return f"{re.sub(r'[._-]+', '-', name).lower()}=={release}"


def pin_versions(packages: Iterable[str]) -> list[str]:
    """Return a requirement `name==version` for each of *packages*, with the installed version."""
    return [f"{package}=={version(package)}" for package in packages]


def install(target: Path, wanted: Iterable[str], platform: Sequence[str] = ()) -> None:
    """Install the wheels *wanted* in *target*, which is emptied first.

    *platform* contains the options of pip that select another platform.

    Raises:
        NotInstalled: the lock lacks a package, a hash differs, a wheel is missing, or there is no
            network.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(_entry(each) for each in wanted) + "\n")
        command += ["--target", str(target), *platform, "-r", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled((done.stderr.strip().splitlines() or ["pip failed"])[-1])


def _entry(wanted: str) -> str:
    name, _, release = wanted.partition("==")
    entry = lock().get(encode_name(name, release))
    if entry is None:
        raise NotInstalled(f"{wanted} is not in {LOCK.name}: run `make setup`, or `make lock`")
    return entry


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Hold the build lock of *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases the lock when this process ends
        yield


def replace(file: Path, content: bytes) -> None:
    """Write *file* atomically, so that a reader gets the complete old or new content."""
    made = file.with_name(f"{file.name}.{os.getpid()}")
    made.write_bytes(content)
    made.replace(file)


_NOT_ZIPPED = ("bin",)
_COMPILED = ("__pycache__", "*.pyc")
_FILE, _PROGRAM = 0o100644, 0o100755
_UNIX = 3
_EARLIEST_S = 315_532_800  # 1980: the earliest time in a zip


def zip_folder(folder: Path, time_s: int, below: str = "", *, compiled: bool = False) -> bytes:
    """Return a zip of the files of *folder*, sorted by name.

    Each entry has the time *time_s* and a path that begins with *below*. Python's compiled files
    are included only if *compiled*.
    """
    left_out = _NOT_ZIPPED if compiled else (*_NOT_ZIPPED, *_COMPILED)
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
