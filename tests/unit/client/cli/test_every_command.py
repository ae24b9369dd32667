"""Rules for the help and the options of every command, also without extras."""

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

from tests.style.source import ROOT
from tests.unit.client.cli.commands import COLUMNS, Found, every_command

PAGE = (ROOT / "docs/guides/COMMANDS.md").read_text()
# Commands without --json, each with the reason.
WITHOUT_JSON = {
    "completion": "prints a script of the shell",
    "agent": "prints one line when it is ready",
    "backup": "prints nothing",
    "serve": "prints one line when it is ready",
}
# Commands with --url and without --timeout, each with the reason.
WITHOUT_TIMEOUT = {
    "agent": "keeps operations on disk until the feed answers",
    "archive compact": "requests are a small part of its work, and are repeated",
    "pipeline init": "sends no request",
    "sync": "requests are a small part of its work, and are repeated",
    "sync table": "requests are a small part of its work, and are repeated",
    "tables follow": "runs until it is stopped",
    "tables status": "requests are a small part of its work, and are repeated",
}
# Commands with --stage and without --context, each with the reason.
WITHOUT_CONTEXT = {
    "archive show": "reads an archive, which may belong to no host",
    "archive status": "reads an archive, which may belong to no host",
    "context set": "writes the context",
    "doctor": "also runs before the stage exists",
    "sync approve": "answers a sync, which belongs to one stage",
    "sync reject": "answers a sync, which belongs to one stage",
}
COMMANDS = [each for each in every_command() if not each.is_group]


def test_the_walk_finds_the_commands() -> None:
    """Groups, commands of groups, and the commands below `sync`."""
    names = {each.name for each in every_command()}

    assert {"", "tail", "consumers create", "sync table", "sync approve"} <= names
    assert len(COMMANDS) > 70


@pytest.mark.parametrize("found", every_command(), ids=lambda found: found.name or "tidings")
def test_the_help_has_examples_and_exit_codes_and_fits_a_terminal(found: Found) -> None:
    """A user can copy an example, and no line is longer than the terminal."""
    assert re.search(r"^\s*Examples?:\n\s+\S", found.help, re.M), "no example"
    assert "Exit codes" in found.help
    assert [line for line in found.help.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.parametrize("found", COMMANDS, ids=lambda found: found.name)
def test_commands_that_print_have_json(found: Found) -> None:
    """Programs can read the output of each command."""
    assert ("--json" in found.options) != (found.name in WITHOUT_JSON)


@pytest.mark.parametrize("found", COMMANDS, ids=lambda found: found.name)
def test_commands_with_an_address_have_contexts_and_timeouts(found: Found) -> None:
    """The options that name a feed are the same everywhere."""
    has_url = "--url" in found.options and found.name != "context set"
    has_place = has_url or "--stage" in found.options

    assert ("--context" in found.options) == (has_place and found.name not in WITHOUT_CONTEXT)
    if has_url:
        assert ("--timeout" in found.options) != (found.name in WITHOUT_TIMEOUT)
        (url,) = (each for each in found.command.params if "--url" in each.opts)
        assert "TIDINGS_URL" in (url.help or "")


@pytest.mark.parametrize("found", COMMANDS, ids=lambda found: found.name)
def test_other_exit_codes_are_in_the_table(found: Found) -> None:
    """The page of the command line lists the codes that only some commands have."""
    codes = re.sub(r"\s+", " ", found.help.partition("Exit codes")[2])
    others = set(re.findall(r"(?<![\w.-])(\d+) [a-z]", codes)) - {"0", "1", "2"}

    for code in others:
        assert re.search(rf"^\| {code} \|.*`{found.name}`", PAGE, re.M), f"{code} of {found.name}"


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
    assert "install the extra `serve`, in a checkout: pip install '.[serve]'" in unmet
