"""The example of a pipeline: its commands exist, and each job has only the rights it needs."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import cfnlint.api  # type: ignore[import-untyped]
import click
import pytest
import yaml

from infra import builds, cdk_cli, settings
from tidings.client.cli.main import main

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "pipeline"
WORKFLOW = FOLDER / "deploy.yml"
ROLES = (FOLDER / "roles.yaml").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
_TOKEN = "id-token"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    """YAML 1.1 takes `on` for true."""
    found: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)
    return found


def _steps(workflow: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, step) for name, job in workflow["jobs"].items() for step in job["steps"]]


def _scripts(workflow: dict[str, Any]) -> str:
    return "\n".join(step["run"] for _, step in _steps(workflow) if "run" in step)


def test_what_it_runs_exists(workflow: dict[str, Any]) -> None:
    """Targets, modules, commands with their options, stages, and the CDK's version."""
    scripts = _scripts(workflow)
    targets = set(re.findall(r"\bmake ([a-z-]+)", scripts))
    assert targets == {"synth", "setup"} <= TARGETS
    modules = re.findall(r"python -m ([\w.]+)", scripts)
    assert modules == ["infra.smoke"]
    assert all((ROOT / f"{each.replace('.', '/')}.py").exists() for each in modules)
    assert f"aws-cdk@{cdk_cli.VERSION} " in workflow["env"]["CDK"]
    for stage in re.findall(r"--stage ([a-z]+)|deploy tidings-([a-z]+)", scripts):
        assert "".join(stage) in {each.name for each in settings.STAGES}
    commands = re.findall(r"tidings ([a-z]+(?: [a-z]+)?)((?: --\S+(?: [^-\s)]\S*)?)+)", scripts)
    assert {name for name, _ in commands} == {"doctor", "keys create", "status"}
    for name, options in commands:
        assert {*re.findall(r"--[a-z-]+", options)} <= _options(name), name


def _options(name: str) -> set[str]:
    found: click.Command = main
    for word in name.split():
        assert isinstance(found, click.Group)
        named = found.get_command(click.Context(found), word)
        assert named is not None, name
        found = named
    return {option for each in found.params for option in each.opts}


@pytest.mark.parametrize("job", ["diff", "staging", "prod"])
def test_files_are_deployed_with_their_modes(
    workflow: dict[str, Any], job: str, tmp_path: Path
) -> None:
    """An artifact loses modes: Lambda could not run `run.sh`. A job takes over one folder alone."""
    made, taken = tmp_path / "synth", tmp_path / job
    asset = made / "cdk.out" / "asset.1"
    shutil.copytree(ROOT / "functions" / "stream", asset)
    (made / "node_modules").mkdir()
    taken.mkdir()
    steps = {name: workflow["jobs"][name]["steps"] for name in ("synth", job)}
    for script in _shell(steps["synth"], "tar"):
        script = script if job == "staging" else f"{script} node_modules"  # of a pull request
        subprocess.run(["sh", "-e", "-c", script], cwd=made, check=True)
    (upload,) = (s["with"] for s in steps["synth"] if "upload-artifact" in s.get("uses", ""))
    (download,) = (s["with"] for s in steps[job] if "download-artifact" in s.get("uses", ""))
    _through_artifact(made / upload["path"], taken / download.get("path", "."))
    for script in _shell(steps[job], "tar"):
        subprocess.run(["sh", "-e", "-c", script], cwd=taken, check=True)
    packed = zipfile.ZipFile(io.BytesIO(builds.zip_folder(taken / "cdk.out" / "asset.1", 0)))
    modes = {each.filename: each.external_attr >> 16 & 0o777 for each in packed.infolist()}
    assert modes == {"__init__.py": 0o644, "handler.py": 0o644, "run.sh": 0o755}
    assert not (taken / "node_modules").exists()


def _shell(steps: list[dict[str, Any]], command: str) -> list[str]:
    return [step["run"] for step in steps if step.get("run", "").startswith(command)]


def _through_artifact(path: Path, folder: Path) -> None:
    """Copy like GitHub's artifacts: the contents of *path* in *folder*, all of them 0644."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in [path] if path.is_file() else path.rglob("*"):
        if each.is_file():
            target = folder / each.relative_to(path.parent if path.is_file() else path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, target)


def test_code_of_a_pull_request_runs_without_rights(workflow: dict[str, Any]) -> None:
    """A job with a token of OpenID Connect checks nothing out that is not merged."""
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        uses = [step.get("uses", "") for step in job["steps"]]
        checked_out = any(each.startswith("actions/checkout") for each in uses)
        merged = job.get("if") == "github.event_name == 'push'"
        assert not (_TOKEN in job["permissions"] and checked_out and not merged), name
    assert _TOKEN not in workflow["jobs"]["synth"]["permissions"]
    assert "pull_request_target" not in workflow["on"]


def test_there_is_no_long_lived_key(workflow: dict[str, Any]) -> None:
    """Roles alone, and nothing that is said by a stranger within a script."""
    text = WORKFLOW.read_text(encoding="utf-8")
    assert not re.search(r"secrets\.|AWS_ACCESS_KEY|AWS_SECRET", text)
    assert "${{" not in _scripts(workflow)
    taken = [step["with"] for _, step in _steps(workflow) if "aws-actions" in step.get("uses", "")]
    assert len(taken) == 3
    assert all(each["role-to-assume"].startswith("${{ vars.") for each in taken)


def test_roles_are_taken_by_who_is_meant() -> None:
    """By the whole subject of a token: a pattern would let other branches and forks in."""
    assert [str(each) for each in cfnlint.api.lint(ROLES)] == []
    assert "StringLike" not in ROLES
    subjects = re.findall(r"repo:\$\{Repository\}:(\S+)", ROLES)
    assert subjects == ["pull_request", "environment:staging", "environment:prod"]
    assert ROLES.count("token.actions.githubusercontent.com:aud: sts.amazonaws.com") == 2
