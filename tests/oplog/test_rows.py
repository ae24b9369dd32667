"""The checklist of oplog's contract: no row is without a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
# Rows 66 to 73 are about comparing with a dump, which is no part of the wire.
ROWS = {*range(1, 66), *range(74, 79)}
_NAME = re.compile(r"^(?:async )?def test_((?:O\d\d_)+)", re.M)


def test_every_row_has_a_test_that_names_it() -> None:
    """`test_O45_...`; a test may prove several rows and name them all."""
    found = {
        int(row)
        for path in TESTS.rglob("test_*.py")
        for names in _NAME.findall(path.read_text())
        for row in re.findall(r"\d\d", names)
    }

    assert found >= ROWS
