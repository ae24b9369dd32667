"""docs/operations/COSTS.md: the measured figures make this page."""

from __future__ import annotations

import re

import pytest

from bench import costs_page
from bench.bill import idle, total

PAGE = costs_page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_was_measured_says() -> None:
    """Nobody has edited it, the prices or the figures alone: `python -m bench.costs_page`."""
    assert costs_page.text(costs_page.kept()) == PAGE


def test_what_an_idle_stage_costs_is_said_alike() -> None:
    """In README.md as in COSTS.md, by the computation that `tests/infra/test_idle.py` bounds."""
    page = costs_page.README.read_text(encoding="utf-8")
    assert costs_page.readme(page, costs_page.kept()) == page
    for stage, said in costs_page.IN_README.items():
        figure = next(re.finditer(said, page))[0].split(" ")[0]
        assert figure == f"${total(idle(stage, costs_page.kept())):.2f}"
        assert re.search(rf"^\| `{stage}` \|.*\| {re.escape(figure)} \|$", PAGE, re.MULTILINE)
    with pytest.raises(ValueError, match="an idle dev"):
        costs_page.readme("It costs next to nothing.", costs_page.kept())
