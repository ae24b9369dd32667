"""Help texts: every command has one, also if only the packages of a client are installed."""

from __future__ import annotations

import importlib.metadata as installed
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[4]
# Prints exit code, help and error of each command, without packages except those of the arguments.
PROGRAM = """
import importlib, json, sys
sys.path[:0] = sys.argv[1:]
from click.testing import CliRunner
import click
from tidings.client.cli.main import LazyGroup, main
def paths(command, path=()):
    yield path
    table = command.table if isinstance(command, LazyGroup) else getattr(command, "commands", {})
    for name, entry in table.items():
        if not isinstance(entry, click.Command):
            entry = getattr(importlib.import_module(entry.module), name)
        yield from paths(entry, (*path, name))
found = {}
for path in (*paths(main), ("sync", "table"), ("sync", "approve"), ("sync", "reject")):
    shown = CliRunner().invoke(main, [*path, "--help"], prog_name="tidings")
    found[" ".join(path)] = [shown.exit_code, shown.output, str(shown.exception or "")]
unmet = CliRunner().invoke(main, ["serve", "--port", "1"]).output
print(json.dumps([found, unmet]))
"""


def _base_packages() -> list[installed.Distribution]:
    """Return the dependencies of the package without an extra, and their dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = dict[str, installed.Distribution]()
    wanted = list(project["dependencies"])
    while wanted:
        requirement = Requirement(wanted.pop())
        name = requirement.name.lower()
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[name] = installed.distribution(name)
        wanted += found[name].requires or ()
    return list(found.values())


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a folder with links to the packages that `pip install tidings` installs."""
    for package in _base_packages():
        tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (tmp_path / top).symlink_to(str(package.locate_file(top)))
    assert not (tmp_path / "boto3").exists() and (tmp_path / "click").exists()
    return tmp_path


def test_every_help_text_is_shown_without_extras(base: Path) -> None:
    """And a command that runs without its packages names the extra that has them."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(base), str(ROOT / "src")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found, unmet = json.loads(done.stdout)

    assert len(found) > 60
    assert {path: each for path, each in found.items() if each[0] != 0} == {}
    usages = {path: re.sub(r"\s+", " ", text).strip() for path, (_, text, _) in found.items()}
    assert [path for path, text in usages.items() if f"tidings {path}".strip() not in text] == []
    assert "install the extra in a checkout of Tidings: pip install '.[serve]'" in unmet
