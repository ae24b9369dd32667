"""The commands as they were recorded: help texts, output, `--json`, messages and exit codes.

`RECORD=1 .venv/bin/pytest tests/commands` records them again; read the difference before you
commit it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.admin.cloudformation import deployed
from tests.unit.client.cli.commands import every_command
from tidings.aws.config.stages import CONTROL_OUTPUT, FEEDS_OUTPUT
from tidings.client.cli.main import main
from tidings.client.cli.resources import command_of
from tidings.server.running import Server

FOLDER = Path(__file__).parent
OUTPUTS = {CONTROL_OUTPUT: "control", FEEDS_OUTPUT: "main"}
_SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.M | re.S)
_KEY = re.compile(r"tdk_([0-9a-z]{12})_[\w-]{32}")
# Values that differ in each run; the same value always has the same name.
_NAMED = (
    ("secret", re.compile(r"whsec_[\w+/=-]+")),
    ("event", re.compile(r"\b[0-9a-f]{24}\b")),
    ("password", re.compile(r"(?<![\w-])[\w-]{32}(?![\w-])")),
)
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z")
_NUMBERS = re.compile(r'((?:\b|_)ms(?:_ago)?"?:? +|(?:_|")ms(?:_ago)?":)-?\d+(?:,\d{3})*')
_DURATIONS = re.compile(r"^(  (?:lag|heard) +)\d[\d.]* (?:ms|s|min)(?: \d+ s)?")
_COUNTS = re.compile(r'"removed":\{[^}]+\}')
_REMOVED = re.compile(
    r"    [a-z-]+ +[\d,]+"
)  # the numbers of items that the removal of a feed found


class Session:
    """Runs commands, and names the values of their output that differ in each run."""

    def __init__(self, place: list[str], hidden: dict[str, str]) -> None:
        self._place, self._hidden = place, hidden
        self._known: dict[str, str] = {}

    def run(self, line: str) -> str:
        """Return the lines of the transcript for the command *line*."""
        words, _, given = line.partition(" <<< ")
        for value, name in self._known.items():
            words = words.replace(name, value)
        done = CliRunner().invoke(
            main,
            [*shlex.split(words), *self._place],
            input="\n".join(map(str, shlex.split(given))) + "\n" if given else None,
            prog_name="tidings",
        )
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        out = [f"  {each}" for each in done.stdout.splitlines()]
        out = [each for each in out if not _REMOVED.fullmatch(each)]
        errors = [f"! {each}" for each in done.stderr.splitlines()]
        told = [*map(self._cleaned, out), *map(self._cleaned, errors)]
        if line.startswith("keys list"):
            told.sort()  # ids are random, and the order is theirs
        return "\n".join([f"$ {line}", *told, f"= {done.exit_code}"])

    def _cleaned(self, text: str) -> str:
        for value, name in self._hidden.items():
            text = text.replace(value, name)
        for found in _KEY.finditer(text):
            self._name("key", found[0])
            self._name("id", found[1])
        for kind, pattern in _NAMED:
            for found in pattern.finditer(_KEY.sub("", text)):
                self._name(kind, found[0])
        for value, name in self._known.items():
            text = text.replace(value, name)
        text = _COUNTS.sub('"removed":<counts>', text)
        text = _DURATIONS.sub(r"\1<duration>", text)
        text = _NUMBERS.sub(r"\1<ms>", _TIMES.sub("<time>", text))
        return re.sub(r"(?<=\S) {2,}", "  ", text).rstrip()

    def _name(self, kind: str, value: str) -> None:
        if value not in self._known:
            number = sum(name.startswith(f"<{kind}-") for name in self._known.values()) + 1
            self._known[value] = f"<{kind}-{number}>"


def sections() -> dict[str, list[str]]:
    found = _SECTION.findall((FOLDER / "scenario.txt").read_text())
    return {name: lines.split("\n") for name, lines in found}


def check(name: str, text: str) -> None:
    """Compare *text* with the recorded one, line by line, or record it."""
    file = FOLDER / "recorded" / f"{name}.txt"
    if "RECORD" in os.environ:
        file.write_text(text)
    assert text.splitlines() == file.read_text().splitlines()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def transcript(section: str, place: list[str], hidden: dict[str, str] | None = None) -> str:
    session = Session(place, hidden or {})
    return "\n".join(session.run(line) for line in sections()[section] if line) + "\n"


def test_the_help_of_every_command() -> None:
    """All texts on a terminal of 80 columns."""
    check("help", "".join(f"## {each.name}\n{each.help}\n\n" for each in every_command()))


def test_commands_over_http(server: Server) -> None:
    at = server.url.rstrip("/")
    check("url", transcript("url", ["--url", at], {server.url: "http://HOST/", at: "http://HOST"}))


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the operator. By default, it is the user of the process."""
    monkeypatch.setenv("LOGNAME", "eve")


@pytest.mark.usefixtures("operator")
def test_commands_on_a_running_server() -> None:
    """Through the socket in its data folder."""
    with Server() as running:
        for section in ("data", "folder", "serving"):
            check(section, transcript(section, running.locator, {str(running.data): "DATA"}))


@pytest.mark.usefixtures("operator")
def test_commands_on_a_stopped_server() -> None:
    """On its file; the answers are those of a running server, if the server need not run."""
    with Server() as stopped:
        stopped.stop()
        for section, recorded in (("data", "data"), ("folder", "folder"), ("serving", "stopped")):
            check(recorded, transcript(section, stopped.locator, {str(stopped.data): "DATA"}))


def test_commands_on_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """On its tables, with the rights of the operator."""
    with deployed(monkeypatch, OUTPUTS):
        check("stage", transcript("data", ["--stage", "dev"]))


# The sections in which the commands with an option of a place run, for each such option.
PLACES = {"--url": ("url",), "--data": ("data", "folder", "serving"), "--endpoint-url": ("data",)}


@pytest.mark.parametrize("option", PLACES)
def test_each_declared_command_is_recorded_with_each_place(option: str) -> None:
    lines = [line for section in PLACES[option] for line in sections()[section]]
    declared = [
        each
        for each in every_command()
        if getattr(each.command.callback, "__module__", "") == command_of.__module__
    ]

    assert len(declared) > 40
    assert [
        each.name
        for each in declared
        if option in each.options
        and not any(f"{line} ".startswith(f"{each.name} ") for line in lines)
    ] == []


def test_commands_without_a_place() -> None:
    """And with a place that does not exist or is named twice."""
    check("nowhere", transcript("nowhere", []))
