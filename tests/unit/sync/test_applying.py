"""A plan in a folder is applied part by part, however long it takes and whatever gets lost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from tests.fakes import MemoryLog
from tests.unit.core.scene import FEED, Scene, op
from tests.unit.core.sync.test_apply import correct, corrector, through
from tidings.core import limits
from tidings.core.errors import PlanTooOld, Unavailable
from tidings.core.model.operations import event_of, parse_line
from tidings.core.model.pages import Page
from tidings.core.sync import corrections
from tidings.core.sync.corrections import NOWHERE
from tidings.sync import command as sync_command
from tidings.sync import feed as sync_feed
from tidings.sync.cli import Outcome, Phases
from tidings.sync.feed import Applied, NotFollowing


class Slow(MemoryLog):
    """Each page takes a run's whole time; the answers of *lost* attempts never arrive."""

    def __init__(self, lost: Sequence[int] = ()) -> None:
        super().__init__()
        self.scene: Scene | None = None
        self.lost, self.attempts = lost, 0

    def put(self, feed: str, page: Page) -> str:
        answer = super().put(feed, page)
        assert self.scene is not None
        self.scene.now_ms += limits.CORRECT_RUN_MS
        self.attempts += 1
        if self.attempts in self.lost:
            raise Unavailable("no answer")
        return answer


def scene_of(log: Slow) -> Scene:
    log.scene = Scene(log=log)
    return log.scene


def planned(folder: Path, *parts: tuple[str, list[str]]) -> Path:
    """Write a plan: for each part its folder, and the names in it."""
    for number, (name, objects) in enumerate(parts):
        (folder / name).mkdir(exist_ok=True)
        event = name.partition("-")[2]
        lines = [corrections.encode(correct(each, NOWHERE, event)) for each in objects]
        text = "".join(f"{line}\n" for line in lines)
        (folder / name / f"part-{number}.txt.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def said(scene: Scene) -> list[str]:
    lines = [line for page in scene.log.read(FEED, 0) for line in page.lines]
    return [f"{event_of(line)} {parse_line(line).id}" for line in lines]


def test_a_part_goes_on_where_a_run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has time for one batch; every line is applied once, in the order of the parts."""
    monkeypatch.setattr(limits, "REQUEST_OPERATIONS_MAX", 2)
    told: list[int] = []
    scene = scene_of(Slow())
    names = [f"x{number}" for number in range(5)]
    plan = planned(tmp_path, ("2-update", ["u"]), ("1-insert", names), ("1-insert", ["last"]))

    done = Applied()
    sync_feed.apply_plan(corrector(scene), FEED, plan, through(scene), done, told.append)

    assert done == Applied(applied=7)
    assert said(scene) == [*(f"insert {name}" for name in names), "insert last", "update u"]
    assert (sum(told), told) == (7, [2, 2, 1, 1, 1])


def test_an_answer_that_was_lost_is_found_out(tmp_path: Path) -> None:
    """The corrections were applied; after three lost answers in a row the command fails."""
    scene = scene_of(Slow(lost=[1]))
    plan = planned(tmp_path, ("1-insert", ["a", "b"]))
    done = Applied()
    sync_feed.apply_plan(corrector(scene), FEED, plan, through(scene), done, lambda count: None)
    assert done == Applied(done=2)
    assert said(scene) == ["insert a", "insert b"]


def test_a_log_that_is_away_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after a limited number of attempts."""
    scene, asked = scene_of(Slow()), []

    def away(feed: str, operations: int = 0) -> int:
        asked.append(operations)
        raise Unavailable("no answer")

    monkeypatch.setattr(scene.log, "take", away)
    plan, done = planned(tmp_path, ("1-insert", ["a"])), Applied()
    with pytest.raises(Unavailable):
        sync_feed.apply_plan(corrector(scene), FEED, plan, through(scene), done, lambda count: None)
    assert len(asked) == sync_feed.ATTEMPTS_MAX


@dataclass
class Here:
    """A feed whose follower `state` handles one page at each request, if it *moves*."""

    scene: Scene
    moves: bool = True
    feed: str = FEED
    reached: int = 0

    def checkpoint(self) -> int:
        self.reached += self.moves and self.reached < self.end()
        return self.reached

    def end(self) -> int:
        return self.scene.reader.frontier(self.feed, 0).page


def waited(here: Here, stall_ms: int) -> int:
    return sync_feed.wait_for_state(here.feed, here.end(), here.checkpoint, stall_ms=stall_ms)


def test_a_state_that_moves_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits however long it takes; it stops waiting when the state does not advance."""
    scene, slept = Scene(), list[int]()
    monkeypatch.setattr(sync_feed, "sleep_ms", slept.append)
    for number in range(20):
        scene.post(op(f"x{number}"))
    assert waited(Here(scene), stall_ms=2_000) == 20
    assert sum(slept) > 5 * 2_000


def test_a_state_that_stands_still_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops after the limit, with the position; a number of a crashed writer is not waited
    for."""
    scene, slept = Scene(), list[int]()
    monkeypatch.setattr(sync_feed, "sleep_ms", slept.append)
    scene.post(op("a"))
    with pytest.raises(NotFollowing, match=r"is at page 0 and the log at page 1; .* for 3 s"):
        waited(Here(scene, moves=False), stall_ms=3_000)
    assert 3_000 <= sum(slept) < 3_000 + sync_feed.POLL_MS_MAX
    scene.log.take(FEED, 1)
    assert waited(Here(scene, moves=False, reached=1), stall_ms=0) == 1


@dataclass(frozen=True)
class Ending:
    """A run that has made its plan and applied some of it when *error* ends it."""

    error: Exception

    def run(self, phases: Phases, folder: Path, told: Outcome) -> None:
        from tidings.sync.job import Summary

        told.summary, told.applied = Summary(creates=5, lines=5), Applied(applied=3)
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (sync_command.Lags("all is applied, but the state stands"), sync_command.LAGS),
        (Unavailable("no answer"), 1),
        (PlanTooOld(feed=FEED, through=1), 1),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_run_that_fails_shows_what_it_did(error: Exception, code: int, as_json: bool) -> None:
    """The summary is printed, with the reason in its JSON; the exit code says whether work is
    left."""

    @click.command()
    @click.pass_context
    def command(ctx: click.Context) -> None:
        sync_command._report(ctx, cast("Any", Ending(error)), as_json)

    ended = CliRunner().invoke(command)
    assert (ended.exit_code, str(error) in ended.stderr) == (code, True)
    if as_json:
        told = json.loads(ended.stdout)
        assert (told["creates"], told["applied"], told["failed"]) == (5, 3, str(error))
    else:
        assert "applied 3" in ended.stdout
