"""The lanes: each test in one, each with its command, none silently green."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import lanes
from tests.scheduling import group_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("nodeid", "markers", "lane"),
    [
        ("tests/unit/core/log/test_append.py::test_a", (), lanes.FAST),
        ("tests/unit/client/test_console.py::test_a", ("browser",), lanes.FAST),
        ("tests/world/test_http.py::test_a", ("curl",), lanes.WORLD),
        ("tests/unit/pipelines/test_stores.py::test_a", ("redis",), lanes.DATA),
        ("tests/unit/sync/table/test_command.py::test_a", ("java", "postgresql"), lanes.DATA),
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
        [*lanes.SERVERS],
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
    assert lanes.is_outside("/src/tests/world", lanes.FAST)
    assert lanes.is_outside("/src/tests/world", lanes.WORLD) is None


def test_a_lane_collects_the_files_that_may_have_its_tests(tmp_path: Path) -> None:
    """By words in their text or in files that they share; no other file may have a test of it."""
    texts = {"a/test_a.py": "twin", "b/conftest.py": "spark", "b/test_b.py": "", "c/test_c.py": ""}
    texts["d/test_d.py"] = "def test(redis_url: str) -> None: ..."
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    paths = {name[0]: str(tmp_path / name) for name in texts if "test_" in name}

    for lane, has in ((lanes.TWIN, "a"), (lanes.SPARK, "b"), (lanes.DATA, "d")):
        assert [name for name in paths if not lanes.is_outside(paths[name], lane)] == [has]
        assert [name for name in paths if not lanes.is_lost(paths[name], lane)] == [has]
    assert not any(lanes.is_lost(path, lanes.FAST) for path in paths.values())


def test_two_workers_run_the_suite_of_the_protocol_against_two_hosts() -> None:
    """Each host is started once, and no test of it runs elsewhere."""
    suite = "tests/conformance/test_conformance.py::test_law"
    ids = [f"{suite}[{name}]" for name in ("twin-12.1-sse", "twin-8.1-ws", "lanes-8.1-ws")]

    assert [group_of(each) for each in ids] == [f"{suite}[twin", f"{suite}[twin", f"{suite}[lanes"]


def test_tests_of_what_lambda_runs_run_once() -> None:
    """All of them in `make test-runtime`, and one of each file in `make test`, if both run."""
    core, other = "tests/unit/core/test_a.py::", "tests/unit/server/test_a.py::"
    found = [f"{file}test_{number}" for file in (core, other) for number in range(3)]

    assert lanes.sample(found) == {found[0], *found[3:]}
    assert all((ROOT / folder).is_dir() for folder in lanes.RUNTIME)
    assert f"export {lanes.RUNTIME_APART}=1\n" in (ROOT / ".ci/run").read_text()
    assert "lane make test-runtime\n" in (ROOT / ".ci/run").read_text()


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
        assert f"lane {lane.command}\n" in ci
