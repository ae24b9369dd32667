"""Locate the functions that the twin runs, in an installed wheel or a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidings.twin.problems import NoFunctions

_HERE = Path(__file__).resolve().parent
PACKED = "packed"  # next to this file in the wheel (pyproject.toml)


@dataclass(frozen=True, slots=True)
class Installed:
    """The functions; without *layers* the workers import the installed packages."""

    functions: Path
    layers: tuple[Path, ...] = ()


def find(here: Path = _HERE) -> Installed:
    """
    Return the files that belong to the package in the folder *here*.

    Raises:
        NoFunctions: the package was installed without functions.
    """
    packed = here / PACKED
    if packed.is_dir():
        return Installed(packed / "functions")
    for folder in here.parents:
        if (folder / "functions").is_dir() and (folder / "pyproject.toml").is_file():
            return checkout(folder)
    raise NoFunctions(str(here))


def checkout(folder: Path) -> Installed:
    """Return the files of a checkout in *folder*."""
    return Installed(folder / "functions", (folder / "src",))
