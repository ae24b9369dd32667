"""docs/operations/RUNBOOKS.md: each alarm leads to a section, and each command is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from infra import names
from tests.functions.cloud import lines_of, log_here
from tidings.aws.config.settings import SERVICE_VARIABLE, metrics_service
from tidings.aws.stage import write_trace
from tidings.client.cli.main import main
from tidings.core.attention import RULES
from tidings.core.effects import TraceRecord

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / names.PAGE).read_text(encoding="utf-8")
_TEXT, _FIELD = re.compile(r'"[^"]*"|@\w+'), re.compile(r"[a-z_]+")
_SYNTAX = {"filter", "in", "and", "display", "sort"}
_COMMAND = re.compile(r"`(tidings [^`]+)`")
COMMANDS = sorted(set(_COMMAND.findall(TEXT)))
SECTIONS = [part.partition("\n") for part in TEXT.split("\n## ")[1:]]


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _found(command: str) -> tuple[click.Command, list[str]]:
    """Return the command that runs it, and its words."""
    words = shlex.split(command.partition(">")[0])[1:]
    found: click.Command = main
    while isinstance(found, click.Group) and words and not words[0].startswith("-"):
        named = found.get_command(click.Context(found), words.pop(0))
        assert named is not None, command
        found = named
    return found, words


def test_each_figure_that_calls_for_a_person_leads_to_a_section() -> None:
    """The line in the log names it, and the section has a link for each."""
    body = next(text for title, _, text in SECTIONS if title == "Attention or Behind")
    assert names.METRICS.keys() == RULES.keys()
    for metric, section in names.METRICS.items():
        assert re.search(rf"^\| .*`{metric}`.*\(#{section}\)", body, re.M), metric


@pytest.mark.parametrize("metric", RULES)
def test_operators_are_told_which_figures_call_for_them(metric: str) -> None:
    """At once, or if it lasts; and from which limit on where that is not the first one."""
    page = (ROOT / "docs/operations/OPERATIONS.md").read_text(encoding="utf-8")
    table = page.split("| metric | alarm |")[1].partition("\n\n")[0]
    (row,) = [each for each in table.splitlines() if f"`{metric}`" in each.split(" | ")[0]]
    condition, alarm = row.split(" | ")[:2]
    assert alarm == ("`Behind`" if RULES[metric].lasting else "`Attention`")
    assert (" above " in condition) == (RULES[metric].limit > 0), condition


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_runbook_is_one(command: str) -> None:
    """It exists, and so does each of its options; a section may name a command alone."""
    found, words = _found(command)
    known = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_alarm_leads_to_a_section() -> None:
    """And every section that alarms lead to is there."""
    anchors = {anchor(title) for title, _, _ in SECTIONS}
    assert set(names.SECTIONS.values()) <= anchors
    assert names.description("Failures").endswith("#a-function-fails")
    assert names.description("LogReadThrottleEvents").endswith("#throttles")
    assert names.description("SweepInvocations").endswith("#a-schedule-does-not-run")
    with pytest.raises(StopIteration):
        names.description("Unheard")


def test_the_queries_of_a_late_operation_name_what_the_lines_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their fields are those that functions write, and `message` has the values they look for."""
    monkeypatch.setenv(SERVICE_VARIABLE, metrics_service("prod"))
    log_here()
    body = next(text for title, _, text in SECTIONS if title == "An operation was late")
    queries = re.findall(r"`(filter [^`]+)`", body)
    for record in (
        TraceRecord("state", "main", 1, 20, "a" * 32),
        TraceRecord("push", "main", 1, 20),
    ):
        write_trace(record)
    lines = lines_of(capsys)

    named = {name for query in queries for name in _FIELD.findall(_TEXT.sub("", query))}
    assert len(queries) == 2
    assert named - _SYNTAX <= {name for line in lines for name in line}
    assert [line["message"] for line in lines] == re.findall(r'"(traced|late)"', queries[0])
