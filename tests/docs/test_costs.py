"""docs/operations/COSTS.md: what was measured makes this page, and its arithmetic is right."""

from __future__ import annotations

import re
from math import isclose, prod

import pytest

from bench import costs_page
from bench.bill import SIZES, Bill, idle, total
from infra import prices

PAGE = costs_page.PAGE.read_text(encoding="utf-8")
_ROW = re.compile(r"^\| ([^|]+) \| (?:([^|]+) )?\| ([\d,.]+) \|$", re.MULTILINE)
_TOTAL = re.compile(r"^\| \*\*together\*\* \| \| \*\*([\d,.]+)\*\* \|$", re.MULTILINE)


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("$", ""))


def _computed(formula: str) -> float:
    """What a reader with a calculator comes to."""
    *factors, price = formula.split(" x ")
    dollars, _, per = price.partition(" / ")
    numbers = [_number(factor.split(" ")[0]) for factor in factors]
    return prod(numbers) * _number(dollars) / _number(per)


def test_the_page_is_what_was_measured_says() -> None:
    """Nobody has edited it, the prices or the figures alone: `python -m bench.costs_page`."""
    assert costs_page.text(costs_page.kept()) == PAGE


@pytest.mark.parametrize("name", [size.name for size in SIZES])
def test_each_formula_is_right(name: str) -> None:
    """Multiplied as it is printed it is the amount behind it, and all are the sum."""
    section = PAGE.split(f"## {name}\n")[1].partition("\n## ")[0]
    rows = _ROW.findall(section)
    assert len(rows) > 10
    for _, formula, dollars in rows:
        if formula:
            assert isclose(_computed(formula), _number(dollars), abs_tol=0.006), formula
    total = _number(_TOTAL.findall(section)[0])
    assert isclose(sum(_number(dollars) for *_, dollars in rows), total, abs_tol=0.005 * len(rows))


@pytest.mark.parametrize(
    ("name", "most"), [("A company", 900), ("A million connections", 45_770 / 2)]
)
def test_waiting_and_traffic_are_cheap(name: str, most: float) -> None:
    """ADR 52: keep-alives that no function answers, and messages in gzip."""
    (size,) = (each for each in SIZES if each.name == name)

    assert Bill(size, costs_page.kept()).dollars <= most


def test_every_price_that_is_used_is_listed() -> None:
    """With its source; and none is listed that nothing costs."""
    used = {line.price.unit for size in SIZES for line in Bill(size, costs_page.kept()).lines()}
    assert used == {price.unit for price in prices.ALL}
    assert all(price.source.startswith("https://aws.amazon.com/") for price in prices.ALL)


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
