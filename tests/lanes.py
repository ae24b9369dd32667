"""
Lanes: which tests one command runs.

Each test is in one lane, by what it needs: a folder of `DEPLOY`, else its markers. A lane asks for
its tools before it collects, so that none is green because everything was skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

FAST, TWIN, SPARK, DEPLOYING = "fast", "twin", "spark", "deploy"
# Of templates, roles, releases and updates: who changes `infra/` or cuts a release needs them.
DEPLOY = ("tests/deploy/", "tests/iam/", "tests/infra/", "tests/localstack/", "tests/release/")


@dataclass(frozen=True)
class Lane:
    """What `make` calls it, what runs in it, and the markers of what it cannot do without."""

    command: str
    runs: str
    needs: Collection[str] = ()


LANES: Mapping[str, Lane] = {
    FAST: Lane("make test", "what needs Python alone, and what is fast with Node.js or Chromium"),
    TWIN: Lane("make test-twin", "what the deployed functions show", ("java",)),
    SPARK: Lane("make test-spark", "jobs, tables and sources on Spark", ("spark",)),
    DEPLOYING: Lane("make test-deploy", "templates, roles, releases and updates", ("java", "node")),
}


def lane_of(nodeid: str, markers: Collection[str]) -> str:
    """The lane of a test, by where it is and what it is marked with."""
    if nodeid.startswith(DEPLOY):
        return DEPLOYING
    if SPARK in markers:
        return SPARK
    return TWIN if "java" in markers else FAST


def is_outside(path: str, lane: str) -> bool | None:
    """True for a folder of `DEPLOY` where it is not *lane*'s; None where markers decide."""
    return True if lane != DEPLOYING and f"{path}/".endswith(DEPLOY) else None


def missing(lane: str, has: Callable[[str], bool]) -> list[str]:
    """The markers of what *lane* needs and this machine has not."""
    return [marker for marker in LANES[lane].needs if not has(marker)]
