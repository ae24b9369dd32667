"""DynamoDB Local as Maven brings it: kept only if it is, to the byte, what was tested."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidings.twin.problems import WrongSum
from tidings.twin.store import dynamodb_local


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A copy of the engine, by links."""
    if not dynamodb_local.CACHE.is_dir():
        pytest.skip("the engine was never fetched here")
    folder = tmp_path / "jars"
    shutil.copytree(dynamodb_local.CACHE, folder, copy_function=lambda a, b: Path(b).symlink_to(a))
    return folder


def test_what_was_tested_is_taken(jars: Path) -> None:
    """All of it, natives too."""
    dynamodb_local.check_sums(jars)


@pytest.mark.parametrize("change", ["another", "missing", "more"])
def test_anything_else_is_refused(jars: Path, change: str) -> None:
    """By its name: a jar with other bytes, one too few, one too many."""
    some = sorted(jars.glob("*.jar"))[3]
    changed = jars / "added.jar" if change == "more" else some
    changed.unlink(missing_ok=True)
    if change != "missing":
        changed.write_bytes(b"something else")
    with pytest.raises(WrongSum, match=changed.name):
        dynamodb_local.check_sums(jars)
