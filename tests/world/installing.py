"""Clients of other languages: installed once below `build/world`, as their lock files say.

npm compares each package with its integrity hash in `clients/package-lock.json`, Go with its sum
in `clients/go.sum`.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
BUILD = ROOT / "build" / "world"
# No scripts of packages: they only compile faster variants.
_NPM = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


class NotInstalled(Exception):
    """A package manager failed; the message is its output."""


def node_folder() -> Path:
    """Return the folder with `node_modules` and our scripts that use them."""
    folder = BUILD / "node"
    _once(folder, ("package.json", "package-lock.json"), lambda: _run(_NPM, folder))
    for script in CLIENTS.glob("*.mjs"):
        _copy_if_other(script, folder / script.name)
    return folder


def go_program() -> Path:
    """Return the compiled clients in Go."""
    folder = BUILD / "go"
    build = ("env", "CGO_ENABLED=0", "go", "build", "-mod=readonly", "-o", "clients", ".")
    _once(folder, ("go.mod", "go.sum", "main.go"), lambda: _run(build, folder))
    return folder / "clients"


def _once(folder: Path, files: Sequence[str], install: Callable[[], None]) -> None:
    """Call *install* in *folder* with copies of *files*, unless it was called for the same."""
    digest = hashlib.sha256(b"\0".join((CLIENTS / name).read_bytes() for name in files)).hexdigest()
    with _locked(folder):
        stamp = folder / "installed"
        if stamp.is_file() and stamp.read_text() == digest:
            return
        for name in files:
            shutil.copyfile(CLIENTS / name, folder / name)
        install()
        stamp.write_text(digest)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock, because each worker of a test run installs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _copy_if_other(source: Path, target: Path) -> None:
    if not target.is_file() or target.read_bytes() != source.read_bytes():
        shutil.copyfile(source, target)


def _run(command: Sequence[str], folder: Path) -> None:
    """Raises:
    NotInstalled: *command* failed.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)}:\n{done.stdout}")
