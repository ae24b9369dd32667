"""docs/operations/SECURITY.md: each threat has a test, and the test is there."""

from __future__ import annotations

import ast
import re

from tests.style.source import ROOT, Function

PAGE = (ROOT / "docs/operations/SECURITY.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def _rows() -> list[str]:
    table = PAGE.partition("## Threats")[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][1:]


def _tests_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {each.name for each in ast.walk(tree) if isinstance(each, Function)}


def test_every_threat_names_a_test() -> None:
    """One at least, in the last column."""
    rows = _rows()

    assert len(rows) > 15
    assert [row for row in rows if not _TEST.search(row.rsplit(" | ", 1)[1])] == []


def test_every_test_that_is_named_is_there() -> None:
    """By file and name."""
    named = _TEST.findall(PAGE)
    missing = [f"{path}::{name}" for path, name in named if name not in _tests_in(path)]

    assert missing == []
