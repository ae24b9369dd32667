"""The lanes: each test in one, each with its command, none silently green."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import lanes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("nodeid", "markers", "lane"),
    [
        ("tests/unit/core/log/test_append.py::test_a", (), lanes.FAST),
        ("tests/unit/client/test_console.py::test_a", ("browser",), lanes.FAST),
        ("tests/world/test_http.py::test_a", ("curl",), lanes.WORLD),
        ("tests/unit/twin/test_twin.py::test_a", ("java",), lanes.TWIN),
        ("tests/unit/sync/test_diff.py::test_a", ("java", "spark"), lanes.SPARK),
        ("tests/infra/test_lake.py::test_a", ("node", "java"), lanes.DEPLOYING),
        ("tests/iam/test_roles.py::test_a", (), lanes.DEPLOYING),
    ],
)
def test_each_test_is_in_one_lane(nodeid: str, markers: tuple[str, ...], lane: str) -> None:
    """By its folder, else by its markers."""
    assert lanes.lane_of(nodeid, markers) == lane


def test_a_lane_asks_for_its_tools() -> None:
    """Missing tools are named; the fast lane needs Python alone."""
    assert lanes.missing(lanes.DEPLOYING, lambda marker: marker == "java") == ["node"]
    assert [lanes.missing(name, lambda _: False) for name in lanes.LANES] == [
        [],
        ["node", *lanes.PROGRAMS],
        ["java"],
        ["spark"],
        ["java", "node"],
    ]
    assert lanes.missing(lanes.FAST, lambda _: False, in_ci=True) == ["curl", "node"]


def test_no_other_lane_imports_tests_of_templates() -> None:
    """They load Node.js, which the machine need not have."""
    assert lanes.is_outside("/src/tests/infra", lanes.FAST)
    assert lanes.is_outside("/src/tests/infra", lanes.DEPLOYING) is None
    assert lanes.is_outside("/src/tests/unit/core", lanes.FAST) is None
    assert lanes.is_outside(str(ROOT / "tests/fuzz/test_http.py"), lanes.FAST)
    assert all(lanes.is_outside("/src/tests/aws", each) for each in lanes.LANES)
    assert lanes.is_outside("/src/tests/unit/aws", lanes.FAST) is None


def test_each_lane_has_its_command() -> None:
    """In the Makefile, in what runs all of them, in CI, and with its time in CONTRIBUTING."""
    makefile = (ROOT / "Makefile").read_text()
    everything = makefile.partition("test-all:")[2].partition("\n\n")[0]
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    ci = (ROOT / ".ci/run").read_text()

    for name, lane in lanes.LANES.items():
        target = lane.command.removeprefix("make ")
        assert re.search(rf"^{target}: .*\n\t\$\(call PYTEST,\d\) {name}$", makefile, re.M)
        assert f"$(MAKE) {target}\n" in f"{everything}\n"
        assert f"| `{lane.command}` |" in contributing
        assert f"\nlane {lane.command}\n" in ci
