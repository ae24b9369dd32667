"""The checklists of the feeds that came before: no row is without a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
_NAMES = [
    name
    for path in TESTS.rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def test_((?:[A-Z]\d\d_)+)", path.read_text(), re.M)
]


@pytest.mark.parametrize(
    ("letter", "rows"),
    [
        # Rows 66 to 73 are about comparing with a dump, which is outside the wire protocol.
        pytest.param("O", {*range(1, 66), *range(74, 79)}, id="oplog"),
        pytest.param("F", {*range(1, 11), *range(21, 44)}, id="triton"),
        pytest.param("A", {*range(1, 43)}, id="changeagent"),
    ],
)
def test_every_row_has_a_test_that_names_it(letter: str, rows: set[int]) -> None:
    """`test_O45_...`; a test may prove several rows and name them all."""
    named = {int(row) for name in _NAMES for row in re.findall(rf"{letter}(\d\d)_", name)}

    assert named >= rows
