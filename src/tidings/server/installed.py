"""Locate the live page and the demo repository, in an installed wheel or a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidings.server.problems import Problem

_HERE = Path(__file__).resolve().parent
PACKED = "packed"  # next to this file in the wheel (pyproject.toml)


class NoPage(Problem):
    def __init__(self, where: str) -> None:
        super().__init__(f"the live page was not found at or above {where}; install Tidings again")


@dataclass(frozen=True, slots=True)
class Installed:
    """The files of the installation: the live page, and a git repository for the demo, if any."""

    console: Path
    history: Path | None = None


def find(here: Path = _HERE) -> Installed:
    """
    Return the files that belong to the package in the folder *here*.

    Raises:
        NoPage: the package was installed without the live page.
    """
    if (here / PACKED).is_dir():
        return Installed(here / PACKED / "console")
    for folder in here.parents:
        if (folder / "console").is_dir() and (folder / "pyproject.toml").is_file():
            return Installed(folder / "console", folder if (folder / ".git").exists() else None)
    raise NoPage(str(here))
