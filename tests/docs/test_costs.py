"""docs/operations/COSTS.md is computed from `bench/costs.json`, like its figures in README.md."""

from __future__ import annotations

from bench import costs_page


def test_the_pages_are_what_was_measured_says() -> None:
    """The pages, prices or figures were not edited alone: `python -m bench.costs_page`."""
    readme = costs_page.README.read_text(encoding="utf-8")
    assert costs_page.text(costs_page.kept()) == costs_page.PAGE.read_text(encoding="utf-8")
    assert costs_page.readme(readme, costs_page.kept()) == readme
