"""The checklist of changeagent's contract: no row is without a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = set(range(1, 43))
_NAME = re.compile(r"^(?:async )?def test_((?:A\d\d_)+)", re.M)


def test_every_row_has_a_test_that_names_it() -> None:
    """`test_A22_...`; a test may prove several rows and name them all."""
    found = {
        int(row)
        for path in TESTS.rglob("test_*.py")
        for names in _NAME.findall(path.read_text())
        for row in re.findall(r"\d\d", names)
    }

    assert found >= ROWS
