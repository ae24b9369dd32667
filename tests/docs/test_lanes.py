"""docs/operations/TESTING.md and docs/operations/DEPLOY.md name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra import cdk_cli
from tests import conftest

ROOT = Path(__file__).parents[2]
LANES = (ROOT / "docs/operations/TESTING.md").read_text()
DEPLOY = (ROOT / "docs/operations/DEPLOY.md").read_text()
_PATH = re.compile(r"`((?:tests|infra)/[\w./-]+)`")
_ROW = re.compile(r"^\| (.+?) \| ([x-]) \| ([x-]) \| ([x-]) \| ([x-]) \| ([x-]) \| (.+) \|$", re.M)
_PLACES = ("memory", "twin", "MiniStack", "LocalStack", "AWS")
# In what lane the tests below a path run; the rest of `tests` runs on the twin or in memory.
_OF_MINISTACK = {"infra/smoke.py", "infra/sandbox.py", "tests/aws/test_keeping.py"}
_ON_MINISTACK = _OF_MINISTACK | {"tests/conformance", "tests/unit/twin/test_schedules.py"}


@pytest.mark.parametrize("page", [LANES, DEPLOY], ids=["lanes", "deploy"])
def test_what_is_named_is_there(page: str) -> None:
    """Folders and files of tests."""
    named = set(_PATH.findall(page))

    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_a_lane_that_shows_a_promise_has_a_test_for_it() -> None:
    """LocalStack's are under its folder, MiniStack's in the deploy lane; AWS has none yet."""
    rows = _ROW.findall(LANES)
    wrong = []
    for promise, *marks, tests in rows:
        shown = {place for place, mark in zip(_PLACES, marks, strict=True) if mark == "x"}
        paths = set(_PATH.findall(tests))
        in_localstack = any(path.startswith("tests/localstack") for path in paths)
        if ("LocalStack" in shown) != in_localstack or "AWS" in shown:
            wrong.append(promise)
        if "MiniStack" in shown and not paths & _ON_MINISTACK:
            wrong.append(promise)

    assert len(rows) > 10
    assert wrong == []


def test_the_markers_are_those_of_the_suite() -> None:
    """Each marker that leaves tests out is in the table, and no other."""
    project = (ROOT / "pyproject.toml").read_text()
    declared = re.findall(r'^markers = \["(\w+):', project, re.M)
    table = LANES.partition("## Markers")[2].partition("\n## ")[0]

    assert {need.marker for need in conftest.NEEDS} | set(declared) == set(
        re.findall(r"^\| `(\w+)`", table, re.M)
    )


def test_the_cdk_that_is_named_is_the_one_that_is_run() -> None:
    """In both pages, in the version of the deploy lane."""
    assert set(re.findall(r"aws-cdk@([\d.]+)", DEPLOY)) == {cdk_cli.VERSION}
    assert f"({cdk_cli.VERSION})" in LANES
