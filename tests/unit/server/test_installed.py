"""Where a host finds what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings.server import installed

ROOT = Path(__file__).parents[3]


def test_a_checkout_shows_its_own_page() -> None:
    """Also where it is installed from it, as a developer has it."""
    assert installed.find().console == ROOT / "console"


def test_a_wheel_shows_what_it_carries(tmp_path: Path) -> None:
    """Even inside a checkout, whose page may be of another version; no history is shown."""
    (tmp_path / "console").mkdir()
    (tmp_path / "pyproject.toml").touch()
    here = tmp_path / "site-packages" / "tidings" / "server"
    (here / installed.PACKED).mkdir(parents=True)

    assert installed.find(here) == installed.Installed(here / "packed" / "console", None)


def test_a_checkout_without_history_shows_none(tmp_path: Path) -> None:
    """An archive of a release has no repository."""
    (tmp_path / "console").mkdir()
    (tmp_path / "pyproject.toml").touch()

    assert installed.find(tmp_path / "server").history is None


def test_neither_is_told_in_one_sentence(tmp_path: Path) -> None:
    """With what to do about it."""
    with pytest.raises(installed.NoPage, match="install Tidings again"):
        installed.find(tmp_path)
