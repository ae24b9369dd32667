"""
The lock: `requirements.lock`, with the sums of every file of each package (`make lock`).

What is deployed is installed by it: in the version that the tests run here, as wheels, and only
with a sum that the lock has.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from infra.paths import ROOT

LOCK = ROOT / "requirements.lock"
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)")


class NotInstalled(Exception):
    """One sentence says what pip, or the lock, lacks."""


@cache
def lock(path: Path = LOCK) -> Mapping[str, str]:
    """By `name==version`, in lower case and with hyphens: the lines of the lock with the sums."""
    entries = re.split(r"\n(?=\S)", path.read_text().strip())
    pins = {_PINNED.match(entry): entry for entry in entries}
    return {encoded(pin["name"], pin["version"]): entry for pin, entry in pins.items() if pin}


def encoded(name: str, release: str) -> str:
    return f"{re.sub(r'[._-]+', '-', name).lower()}=={release}"


def pinned(packages: Iterable[str]) -> list[str]:
    """*packages* in the versions that the tests run."""
    return [f"{package}=={version(package)}" for package in packages]


def install(target: Path, wanted: Iterable[str], platform: Sequence[str] = ()) -> None:
    """
    The wheels *wanted* in *target*, which begins empty; for *platform*, by pip's options, or here.

    Raises:
        NotInstalled: the lock lacks one, a sum differs, there is no wheel, or no network.
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
    entry = lock().get(encoded(name, release))
    if entry is None:
        raise NotInstalled(f"{wanted} is not in {LOCK.name}: run `make setup`, or `make lock`")
    return entry
