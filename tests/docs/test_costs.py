"""docs/operations/COSTS.md is computed from `bench/costs.json`, like its figures in README.md."""

from __future__ import annotations

import pytest

from bench import bill, costs_page
from bench.bill import MONTH_S, SIZES, Bill
from infra import settings

IDLE_MAX = {"dev": 1.0, "staging": 6.0, "prod": 6.0}  # dollars a month


def test_the_pages_are_what_was_measured_says() -> None:
    """The pages, prices or figures were not edited alone: `python -m bench.costs_page`."""
    readme = costs_page.README.read_text(encoding="utf-8")
    assert costs_page.text(costs_page.kept()) == costs_page.PAGE.read_text(encoding="utf-8")
    assert costs_page.readme(readme, costs_page.kept()) == readme


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_a_bill_has_what_aws_bills(size: bill.Size) -> None:
    """By hand: a schedule, logs of requests, a rotated key, rows that are written together."""
    lines = {each.what: each.dollars for each in Bill(size, costs_page.kept()).lines()}
    runs = MONTH_S / 60
    assert lines["sweep: schedule"] == pytest.approx(runs * 1e-6)
    assert lines["posts: access log"] == pytest.approx(size.pages * 330e-9 * 0.5)
    assert lines["coming back: access log"] == pytest.approx(size.sockets * 365 * 3 * 300e-9 * 0.5)
    rotated = lines.get("keys", 0) + lines.get("keys: rotations", 0)
    assert rotated == (3 if size.stage == "prod" else 0)
    if size.batch == 100:  # 105 requests, of which 100 are 5 times 24 at once
        seconds = (31.991 / (1024 / 1769) + 10 * 5) / 1000
        dollars = size.pages * seconds * 13.3334e-6
        assert lines["state: time"] == pytest.approx(dollars, rel=0.001)
        assert dollars < 3


@pytest.mark.parametrize("stage", settings.STAGES, ids=lambda stage: stage.name)
def test_an_idle_stage_is_cheap_with_everything_that_it_enables(stage: settings.Stage) -> None:
    assert bill.total(bill.idle(stage.name, costs_page.kept())) < IDLE_MAX[stage.name]
