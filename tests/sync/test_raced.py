"""A sync that is raced, and many objects at once: all end as the rules say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tidings.client.cli.main import main
from tidings.core.model.operations import EVENTS, event_of, parse_line
from tidings.core.state.rows import Row
from tidings.core.sync.dump import moment_of
from tidings.local.running import Twin
from tidings.sync.progress import Phases

from tests.oplog.feed import Feed, op
from tests.sync.feeds import at
from tests.sync.lines import line, row, written
from tests.sync.test_diff import after, ordered, planned, reconciled

pytestmark = pytest.mark.java


class Steps:
    """Lets something happen when a phase begins, or when lines have been applied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: dict[str, Callable[[], object]] = {}
        begin, advance = Phases.begin, Phases.advance

        def began(phases: Phases, name: str, total: int | None = None) -> None:
            self.at.get(name, lambda: None)()
            begin(phases, name, total)

        def advanced(phases: Phases, count: int) -> None:
            if count:  # Spark may leave a part without lines
                self.at.get("applied", lambda: None)()
            advance(phases, count)

        monkeypatch.setattr(Phases, "begin", began)
        monkeypatch.setattr(Phases, "advance", advanced)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def sync(twin: Twin, feed: str, dump: str) -> Result:
    where = ["--feed", feed, "--endpoint-url", twin.dynamodb_url]
    options = ["--max-delete-share", "1", "--json"]
    return CliRunner().invoke(main, ["sync", dump, *where, *options])


def old(*names: str) -> Sequence[dict[str, object]]:
    return [op(name, timestamp=at(1)) for name in names]


def test_what_is_posted_between_plan_and_apply_stands(
    twin: Twin, feed: str, steps: Steps, spark: SparkSession, tmp_path: Path
) -> None:
    """Of an object that is to be inserted, updated or deleted; the rest of the plan is applied."""
    server = Feed(twin.port, feed)
    server.post(*old("a", "b", "gone", "left"))
    dump = written(tmp_path / "dump", [line(name, 5) for name in ("a", "b", "m", "n")])
    mine = [op(name, "update", timestamp=at(2), data="mine") for name in ("a", "n", "gone")]
    steps.at["applying"] = lambda: server.post(*mine)

    done = sync(twin, feed, dump)

    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["applied"], summary["moved"]) == (3, 3)
    copied = {each.data["id"]: each.data for each in server.copied() if each.name == "insert"}
    assert {name for name, data in copied.items() if data.get("data") == "mine"} == {
        "a",
        "n",
        "gone",
    }
    assert copied.keys() == {"a", "b", "m", "n", "gone"}


OBJECTS = 300
SECONDS = 9


def case(random: Random) -> tuple[list[bytes], list[Row]]:
    """Each object in the dump, once or twice, or not; in the state or not; at any times."""
    dump, rows = [], []
    for number in range(OBJECTS):
        kind, name = random.choice(["video", "U/r%"]), f"é/%{number}"
        texts = [
            line(name, random.randint(0, SECONDS), type=kind, parents=random.choice([(), ("p",)]))
            for _ in range(3)
        ]
        dump += texts[: random.choice([0, 1, 1, 2])]
        if random.random() < 0.7:
            rows.append(row(texts[2], random.choice(EVENTS), page=number + 1))
    random.shuffle(dump)
    return dump, rows


def ruled(dump: list[bytes], rows: list[Row]) -> dict[str, tuple[bool, str, object]]:
    """What the rules say of each object, in the words of docs/guides/SYNC.md."""
    told = {each.key: each for each in map(row, dump)}
    newest = max(moment_of(row(text).line) for text in dump)
    found = {each.key: _said(each) for each in rows}
    for key, (deleted, moment, parents) in list(found.items()):
        if key not in told and not deleted and moment < newest:
            found[key] = (True, moment, parents)
    for key, each in told.items():
        if key not in found or moment_of(each.line) > found[key][1]:
            found[key] = _said(each)
    return found


def _said(each: Row) -> tuple[bool, str, object]:
    return each.deleted, moment_of(each.line), parse_line(each.line).parents


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32))
def test_O71_many_objects_end_as_the_rules_say(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """By the real job, three hundred cases at once, as the core alone; a second plan is empty."""
    dump, rows = case(Random(seed))
    found, summary = planned(spark, tmp_path_factory.mktemp("plan"), dump, rows)
    later = after(rows, found)
    assert {each.key: _said(each) for each in later} == ruled(dump, rows)
    assert ordered(found) == reconciled(dump, rows)
    assert found == sorted(found, key=lambda each: EVENTS.index(event_of(each.line)))
    assert summary.corrections == len(found) > OBJECTS // 10
    again, _ = planned(spark, tmp_path_factory.mktemp("plan"), dump, later)
    assert again == []
