"""The version that answers name."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tidings.core.version import VERSION

ROOT = Path(__file__).parents[2]


def test_it_is_the_version_of_the_package() -> None:
    """Written twice, because functions are deployed without the package's metadata."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
