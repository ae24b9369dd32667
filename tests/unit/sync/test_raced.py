"""A sync that is raced."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.feed import Feed, op
from tests.twin import Twin
from tests.unit.sync.feeds import at
from tests.unit.sync.lines import line, written
from tidings.client.cli.main import main
from tidings.sync.cli import Phases


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
    twin: Twin, feed: str, steps: Steps, tmp_path: Path
) -> None:
    """Objects that were to be inserted, updated or deleted keep the posted operation; the rest of
    the plan is applied.
    """
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
