"""What a host shows: of the wheel it was installed from, or of a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidings.server.problems import Problem

_HERE = Path(__file__).resolve().parent
PACKED = "packed"  # beside this file, where the wheel has it (pyproject.toml)


class NoPage(Problem):
    def __init__(self, where: str) -> None:
        super().__init__(f"the live page was not found at or above {where}; install Tidings again")


@dataclass(frozen=True, slots=True)
class Installed:
    """*console* has the live page, *history* is a git repository for the demo, if there is one."""

    console: Path
    history: Path | None = None


def find(here: Path = _HERE) -> Installed:
    """
    What belongs to the package in the folder *here*.

    Raises:
        NoPage: it was installed without any.
    """
    if (here / PACKED).is_dir():
        return Installed(here / PACKED / "console")
    for folder in here.parents:
        if (folder / "console").is_dir() and (folder / "pyproject.toml").is_file():
            return Installed(folder / "console", folder if (folder / ".git").exists() else None)
    raise NoPage(str(here))
