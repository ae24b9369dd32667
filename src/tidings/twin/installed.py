"""What the twin runs: of the wheel it was installed from, or of a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidings.twin.problems import NoFunctions

_HERE = Path(__file__).resolve().parent
PACKED = "packed"  # beside this file, where the wheel has it (pyproject.toml)


@dataclass(frozen=True, slots=True)
class Installed:
    """Without *layers* the workers import what is installed."""

    functions: Path
    layers: tuple[Path, ...] = ()


def find(here: Path = _HERE) -> Installed:
    """
    What belongs to the package in the folder *here*.

    Raises:
        NoFunctions: it was installed without any.
    """
    packed = here / PACKED
    if packed.is_dir():
        return Installed(packed / "functions")
    for folder in here.parents:
        if (folder / "functions").is_dir() and (folder / "pyproject.toml").is_file():
            return checkout(folder)
    raise NoFunctions(str(here))


def checkout(folder: Path) -> Installed:
    """What a checkout in *folder* has."""
    return Installed(folder / "functions", (folder / "src",))
