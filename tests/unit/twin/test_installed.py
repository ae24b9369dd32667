"""Where the twin finds what it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings.twin import installed
from tidings.twin.problems import NoFunctions

ROOT = Path(__file__).parents[3]


def test_a_checkout_runs_its_own_files() -> None:
    """Also where it is installed from it, as a developer has it."""
    found = installed.find()

    assert found.functions == ROOT / "functions"
    assert found.layers == (ROOT / "src",)


def test_a_wheel_runs_what_it_carries(tmp_path: Path) -> None:
    """Even inside a checkout, whose handlers may be of another version."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "pyproject.toml").touch()
    here = tmp_path / "site-packages" / "tidings" / "twin"
    (here / installed.PACKED).mkdir(parents=True)

    found = installed.find(here)

    assert found.functions == here / "packed" / "functions"
    assert found.layers == ()


def test_neither_is_told_in_one_sentence(tmp_path: Path) -> None:
    """With what to do about it."""
    with pytest.raises(NoFunctions, match="--functions"):
        installed.find(tmp_path)
