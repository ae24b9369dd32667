"""A sync that is killed: nothing is left half, and the next run ends the work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.compat.oplog.feed import Feed
from tests.compat.oplog.wire import until
from tests.real_dumps.test_terminal import COMMAND, PHASES, terminal
from tests.twin import Twin
from tests.unit.sync.feeds import log_operations
from tests.unit.sync.lines import line, written
from tests.unit.sync.test_raced import Steps, old, steps, sync
from tidings.client.cli.main import main
from tidings.sync.feed import on_endpoint

__all__ = ["steps"]
OBJECTS = 4_000  # four pages, a fifth of a second each
COLD_S = 180.0  # until it has compared, on a busy machine


class Killed(BaseException):
    """Never caught: the end of a process, as far as the feed can see."""


def die() -> None:
    raise Killed


def events(twin: Twin, feed: str) -> list[str]:
    return [f"{event} {operation.id}" for event, operation in log_operations(twin, feed)]


def test_killed_at_every_step_it_ends_the_same(
    twin: Twin, feed: str, steps: Steps, tmp_path: Path
) -> None:
    """Nothing happens before the plan exists; then each run continues after the applied part."""
    Feed(twin.port, feed).post(*old("gone"))
    dump = written(tmp_path / "dump", [line("n", 5)])

    def killed_at(step: str) -> list[str]:
        steps.at = {step: die}
        with pytest.raises(Killed):
            sync(twin, feed, dump)
        return events(twin, feed)[1:]

    for step in PHASES:
        assert killed_at(step) == []
    assert killed_at("applied") == ["insert n"]
    assert killed_at("applied") == ["insert n", "delete gone"]

    steps.at = {}
    done = sync(twin, feed, dump)
    assert (done.exit_code, json.loads(done.stdout)["applied"]) == (0, 0)
    assert len(events(twin, feed)) == 1 + 2


def test_a_killed_process_leaves_nothing_half(
    twin: Twin, feed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of applying: applied corrections are not applied again, and the rest is.

    With --json not even a terminal sees more than the summary, which comes at the end.
    """
    names = [f"x{number}" for number in range(OBJECTS)]
    dump = written(tmp_path / "dump", [line(name, 5) for name in names])
    where = ["--feed", feed, "--endpoint-url", twin.dynamodb_url]
    words = [dump, *where, "--expect", str(OBJECTS), "--json"]
    log = on_endpoint(feed, twin.dynamodb_url).stores.log
    with terminal([*COMMAND, *words]) as run:
        # A number drawn is not a page yet: wait for one that can be read.
        until(lambda: run.process.poll() is not None or any(log.read(feed, 0)), COLD_S)
        run.process.kill()
    before = len(events(twin, feed))

    monkeypatch.setenv("FORCE_COLOR", "1")  # the output of a terminal, to the end of a run
    again = CliRunner().invoke(main, ["sync", *words])

    assert (0 < before < OBJECTS, run.seen) == (True, "")
    assert (again.exit_code, again.stderr) == (0, "")
    assert json.loads(again.stdout)["applied"] == OBJECTS - before
    assert sorted(events(twin, feed)) == sorted(f"insert {name}" for name in names)
