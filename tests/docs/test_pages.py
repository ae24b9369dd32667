"""Documents name what there is, and their figures are those that were measured."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from bench import bill, costs_page
from bench.bill import MONTH_S, SIZES, Bill
from infra import cdk_cli, names, settings
from tests import conftest
from tests.functions.cloud import lines_of, log_here
from tidings.aws.config.settings import SERVICE_VARIABLE, metrics_service
from tidings.aws.stage import write_trace
from tidings.client.cli.main import main
from tidings.core.attention import RULES
from tidings.core.effects import TraceRecord

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/COMPARISON.md").read_text()
RESULTS = (ROOT / "bench/RESULTS.md").read_text()
SYSTEMS = ("Kafka", "NATS JetStream", "Redis Streams", "Debezium", "CouchDB", "Mercure", "Electric")
_TABLE_ROW = re.compile(r"^\| (?!---|system |what )(.+?) \| (.+) \|$", re.MULTILINE)
# The name of a figure in the page, with its name in bench/RESULTS.md.
FIGURES = {
    "replay of the log to one client": "replay: rate",
    "copy of all objects to one client": "full replication: rate",
    "memory with a log of 1,000,000 operations": "memory with a log of 1,000,000",
    "1,000 event streams and 1,000 WebSockets, 200 operations a second": (
        "1,000 SSE and 1,000 WebSocket clients, 200 operations a second in requests of 10: p99"
    ),
    "from a POST to a client of Server-Sent Events": "from a POST to one SSE client: p50",
}


def _section(title: str) -> dict[str, str]:
    """Return the rows of the table below a heading: the first cell, and the others."""
    text = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return {first.strip("*"): others for first, others in _TABLE_ROW.findall(text)}


def _number(text: str) -> float:
    found = re.search(r"[\d,]+(?:\.\d+)?", text)
    assert found, text
    return float(found[0].replace(",", ""))


@pytest.mark.parametrize(
    "title",
    [
        "When to choose another system",
        "Order and resuming",
        "Current state and filters",
        "Browsers and repair",
        "Operations",
    ],
)
def test_a_table_has_every_system(title: str) -> None:
    rows = _section(title)

    assert [*rows] == [*SYSTEMS, "Tidings"]
    assert all(others.strip() for others in rows.values())


def test_the_figures_were_measured() -> None:
    """Roughly: if `make bench` writes figures that differ by a quarter, change the page."""
    rows = _section("Figures for Tidings")
    measured = {
        first.partition(" (at most")[0]: others for first, others in _TABLE_ROW.findall(RESULTS)
    }

    assert rows.keys() == FIGURES.keys()
    for name, source in FIGURES.items():
        assert _number(rows[name]) == pytest.approx(_number(measured[source]), rel=0.25), name
    assert _number(measured["memory when idle"]) == pytest.approx(34, rel=0.25)
    assert "a process of 34 MB" in PAGE


IDLE_MAX = {"dev": 1.0, "staging": 6.0, "prod": 6.0}  # dollars a month


def test_the_pages_are_what_was_measured_says() -> None:
    """The pages, prices or figures were not edited alone: `python -m bench.costs_page`."""
    readme = costs_page.README.read_text(encoding="utf-8")
    assert costs_page.text(costs_page.kept()) == costs_page.PAGE.read_text(encoding="utf-8")
    assert costs_page.readme(readme, costs_page.kept()) == readme


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_a_bill_has_what_aws_bills(size: bill.Size) -> None:
    """By hand: a schedule, logs of requests, a rotated key, rows that are written together."""
    lines = {each.what: each.dollars for each in Bill(size, costs_page.kept()).lines()}
    runs = MONTH_S / 60
    assert lines["sweep: schedule"] == pytest.approx(runs * 1e-6)
    assert lines["posts: access log"] == pytest.approx(size.pages * 395e-9 * 0.5)
    assert lines["posts: log of keys"] == pytest.approx(size.pages * 188e-9 * 0.5)
    assert lines["coming back: access log"] == pytest.approx(size.sockets * 365 * 3 * 300e-9 * 0.5)
    rotated = lines.get("keys", 0) + lines.get("keys: rotations", 0)
    assert rotated == (3 if size.stage == "prod" else 0)
    if size.batch == 100:  # 105 requests, of which 100 are 5 times 24 at once
        seconds = (31.991 / (1024 / 1769) + 10 * 5) / 1000
        dollars = size.pages * seconds * 13.3334e-6
        assert lines["state: time"] == pytest.approx(dollars, rel=0.001)
        assert dollars < 3


@pytest.mark.parametrize("stage", settings.STAGES, ids=lambda stage: stage.name)
def test_an_idle_stage_is_cheap_with_everything_that_it_enables(stage: settings.Stage) -> None:
    assert bill.total(bill.idle(stage.name, costs_page.kept())) < IDLE_MAX[stage.name]


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
    cells = re.findall(r"^\| (`.*?) \|", table, re.M)

    assert {need.marker for need in conftest.NEEDS} | set(declared) == set(
        re.findall(r"`(\w+)`", " ".join(cells))
    )


def test_the_cdk_that_is_named_is_the_one_that_is_run() -> None:
    """In both pages, in the version of the deploy lane."""
    assert set(re.findall(r"aws-cdk@([\d.]+)", DEPLOY)) == {cdk_cli.VERSION}
    assert f"({cdk_cli.VERSION})" in LANES


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
