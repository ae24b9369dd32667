"""The version that answers name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tidings.core import version

ROOT = Path(__file__).parents[3]


def test_it_is_the_version_of_the_package() -> None:
    """Written once, here, because functions are deployed without the package's metadata."""
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert package["project"]["dynamic"] == ["version"]
    assert (ROOT / package["tool"]["hatch"]["version"]["path"]).samefile(version.__file__)


def test_it_is_a_version_of_three_numbers() -> None:
    """docs/operations/UPGRADING.md says what each number promises."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", version.VERSION)
