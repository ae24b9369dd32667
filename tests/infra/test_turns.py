"""Builds that run at once do not tear each other's files."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.turns import replace, turn

BUILDERS = 4


def test_one_builds_at_a_time(tmp_path: Path) -> None:
    """Nobody begins before the one before has ended; the folder is made where it is missing."""
    inside: list[int] = []

    def build(number: int) -> bool:
        with turn(tmp_path / "new"):
            inside.append(number)
            time.sleep(0.01)
            return inside[-1] == number

    with ThreadPoolExecutor(BUILDERS) as builders:
        assert all(builders.map(build, range(BUILDERS)))
    assert sorted(inside) == [*range(BUILDERS)]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """Who has the old one open reads it to its end, and nothing else is left behind."""
    file = tmp_path / "archive"
    replace(file, b"old")
    with file.open("rb") as reading:
        replace(file, b"new")
        assert reading.read() == b"old"

    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]
