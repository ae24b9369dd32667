"""The report: every step, what it showed, and how to show what it could not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.sandbox import catalogue, record, report
from infra.sandbox.steps import Outcome, Result, flat

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "docs/operations/sandbox-ministack.md").read_text()
PAGE = (ROOT / "docs/operations/SANDBOX.md").read_text()
NAMES = [step.name for step in report.steps()]
_ROW = re.compile(r"^\| `([a-z-]+)` \| (.+?) \| \**(passed|failed|could not run)\** \|", re.M)


@pytest.fixture
def kept() -> record.Record:
    made = record.begun("AWS", "123456789012", "eu-west-1", {"without": ["canary"]})
    made.results["deploy"] = Result(Outcome.PASSED, figures={"resources": 384}, seconds=301.2)
    made.results["smoke"] = Result(Outcome.FAILED, "POST: 500 | no\nreason", {"tries": 2})
    made.results["spark-with-subnets"] = Result(Outcome.COULD_NOT, "no subnets")
    return made


def test_every_step_is_in_it(kept: record.Record) -> None:
    """Also those that were not reached; figures and reasons of those that were."""
    text = report.markdown(kept)
    assert [name for name, _, _ in _ROW.findall(text)] == NAMES
    assert "| resources | 384 |" in text
    assert "POST: 500 \\| no reason" in text
    assert "1 passed, 1 failed" in text


def test_what_was_not_run_says_what_would_show_it(kept: record.Record) -> None:
    """With the options that it needs."""
    told = {each["step"]: each for each in report.as_json(kept)["steps"]}
    assert told["spark-with-subnets"]["command"] == (
        "python -m infra.sandbox --only spark-with-subnets"
        " --subnet ID --subnet ID --security-group ID"
    )
    assert told["canary"]["reason"] == "it was not asked for"
    assert told["load"]["reason"] == "it was not reached"
    assert "command" not in told["deploy"]
    assert f"| `load` | it was not reached | `{told['load']['command']}` |" in report.markdown(kept)


def test_it_may_be_given_to_others(kept: record.Record) -> None:
    """It names the Region, and neither the account nor an address."""
    text = report.markdown(kept) + str(report.as_json(kept))
    assert "eu-west-1" in text
    assert kept.account not in text


def test_the_example_has_the_steps_that_there_are() -> None:
    """As they are called and what they show; what is AWS's alone is said there with its reason."""
    rows = _ROW.findall(EXAMPLE)
    assert [(name, shows) for name, shows, _ in rows] == [
        (step.name, step.shows) for step in report.steps()
    ]
    outcomes = {name: outcome for name, _, outcome in rows}
    alone = {step.name: step.aws_alone for step in report.steps() if step.aws_alone}
    assert alone.keys() == {name for name, each in outcomes.items() if each == "could not run"}
    for name, reason in alone.items():
        assert re.search(rf"\| `{name}` \| .*{re.escape(reason)}", EXAMPLE), name


def test_the_page_names_each_step() -> None:
    """With what it costs nothing to read before."""
    assert [name for name in NAMES if f"`{name}`" not in PAGE] == []


def test_steps_can_be_run_in_their_order() -> None:
    """Each has a name of its own, and needs what comes before it."""
    assert len(set(NAMES)) == len(NAMES)
    before: set[str] = set()
    for step in flat(catalogue.PLAN):
        assert set(step.needs) <= before, step.name
        before.add(step.name)
    for group in catalogue.PLAN:
        for chain in group:
            others = {each.name for other in group if other is not chain for each in other}
            assert not any(others & set(step.needs) for step in chain)
