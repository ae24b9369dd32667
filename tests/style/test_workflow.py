"""The workflow and the hook of Git: both run what the Makefile runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import lanes
from tests.style.source import ROOT

BIN = Path(sys.executable).parent
WORKFLOW = ROOT / ".github/workflows/ci.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
MAKEFILE = (ROOT / "Makefile").read_text()
JAVA = {"java", "spark", "kafka"}  # markers of tests that start a JVM


def _recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert found, target
    commands = found[1].replace("$(BIN)", ".venv/bin").replace("$(MAKE)", "make")
    return [command.strip() for command in commands.splitlines()]


def _rows() -> list[Mapping[str, Any]]:
    """Return the rows of the workflow's matrix: a target, its minutes, and its tools."""
    rows = yaml.safe_load(WORKFLOW.read_text())["jobs"]["lane"]["strategy"]["matrix"]["include"]
    assert isinstance(rows, list)
    return rows


@pytest.mark.parametrize(
    "command",
    [
        ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)),
        ("pre-commit", "validate-config", str(HOOKS)),
    ],
    ids=["workflow", "hooks"],
)
def test_a_file_has_the_form_that_its_program_reads(command: tuple[str, ...]) -> None:
    done = subprocess.run([str(BIN / command[0]), *command[1:]], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_runs_every_lane() -> None:
    """Each lane of `.ci/run`, after a set-up, and of `make test-all`, and each target exists."""
    targets = [str(row["target"]) for row in _rows()]
    first, *ours = re.findall(r"^ *lane make (.+)$", (ROOT / ".ci/run").read_text(), re.M)
    everything = [command.removeprefix("make ") for command in _recipe("test-all")]

    assert first == "setup"
    assert [each for each in (*ours, *everything) if each not in targets] == []
    assert all(re.search(rf"^{each.split()[0]}:", MAKEFILE, re.M) for each in targets)
    assert len(targets) == len(set(targets))


def test_the_workflow_installs_the_tools_of_each_lane() -> None:
    """A lane without its tools fails after minutes of set-up."""
    rows = {f"make {row['target']}": row for row in _rows()}
    java = {lane.command for lane in lanes.LANES.values() if JAVA & {*lane.needs}}

    assert {command for command, row in rows.items() if row.get("java")} == java
    assert "go" in rows[lanes.LANES[lanes.WORLD].command]
    packages = [row["packages"] for row in rows.values() if "packages" in row]
    assert sorted(packages) == [each.stem for each in sorted((ROOT / "tests/packages").iterdir())]
    assert all(10 < row["minutes"] <= 60 for row in rows.values())


def test_the_hook_runs_the_checks() -> None:
    """Exactly the commands of `make check`, from this checkout and without a network."""
    [repo] = yaml.safe_load(HOOKS.read_text())["repos"]

    assert repo["repo"] == "local"
    assert [hook["entry"] for hook in repo["hooks"]] == _recipe("check")
    assert {hook["language"] for hook in repo["hooks"]} == {"system"}
