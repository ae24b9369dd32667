"""DynamoDB Local: the files that Maven fetched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.twin import dynamodb_local
from tests.twin.dynamodb_local import WrongSum


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """Return a copy of the engine, by links."""
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
    """The error names the jar, which has other bytes, is missing, or is one too many."""
    some = sorted(jars.glob("*.jar"))[3]
    changed = jars / "added.jar" if change == "more" else some
    changed.unlink(missing_ok=True)
    if change != "missing":
        changed.write_bytes(b"something else")
    with pytest.raises(WrongSum, match=changed.name):
        dynamodb_local.check_sums(jars)
