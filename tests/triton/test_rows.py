"""The checklist of Triton's change feed: no row is without a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = {*range(1, 11), *range(21, 44)}
V1_REASONS, V2_REASONS = 7, 9
_NAME = re.compile(r"^(?:async )?def test_((?:F\d\d_)+)", re.M)


def test_every_row_has_a_test_that_names_it() -> None:
    """`test_F30_...`; a test may prove several rows and name them all."""
    found = {
        int(row)
        for path in TESTS.rglob("test_*.py")
        for names in _NAME.findall(path.read_text())
        for row in re.findall(r"\d\d", names)
    }

    assert found >= ROWS


def test_every_reason_of_a_refusal_is_tried() -> None:
    """F7a to F7g, F8a to F8i."""
    text = (Path(__file__).parent / "test_registrations.py").read_text()

    assert len(set(re.findall(r'\("(F7[a-z])"', text) + re.findall(r'"(F7[a-z])",', text))) == (
        V1_REASONS
    )
    assert len(set(re.findall(r'"(F8[a-z])",', text))) == V2_REASONS
