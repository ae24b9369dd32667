"""A plan in a folder is applied part by part, however long it takes and whatever gets lost."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidings.core import corrections, limits
from tidings.core.corrections import NOWHERE
from tidings.core.errors import Unavailable
from tidings.core.followers import STATE
from tidings.core.memory import MemoryFollowers, MemoryLog
from tidings.core.operations import event_of, parse_line
from tidings.core.pages import Page
from tidings.pipeline import applying
from tidings.pipeline.applying import Applied, NotFollowing

from tests.unit.scene import FEED, Scene, op
from tests.unit.test_correcting import correct, corrector, through


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
    """A plan of inserts and so on: the folder of each part, and the names in it."""
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

    done = applying.apply(corrector(scene), FEED, plan, through(scene), told.append)

    assert done == Applied(applied=7)
    assert said(scene) == [*(f"insert {name}" for name in names), "insert last", "update u"]
    assert (sum(told), told) == (7, [2, 2, 1, 1, 1])


def test_an_answer_that_was_lost_is_found_out(tmp_path: Path) -> None:
    """What was applied is done; after three losses in a row the command gives up."""
    scene = scene_of(Slow(lost=[1]))
    plan = planned(tmp_path, ("1-insert", ["a", "b"]))
    done = applying.apply(corrector(scene), FEED, plan, through(scene), lambda count: None)
    assert done == Applied(done=2)
    assert said(scene) == ["insert a", "insert b"]


def test_a_log_that_is_away_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many attempts as are worth it."""
    scene, asked = scene_of(Slow()), []

    def away(feed: str, operations: int = 0) -> int:
        asked.append(operations)
        raise Unavailable("no answer")

    monkeypatch.setattr(scene.log, "take", away)
    plan = planned(tmp_path, ("1-insert", ["a"]))
    with pytest.raises(Unavailable):
        applying.apply(corrector(scene), FEED, plan, through(scene), lambda count: None)
    assert len(asked) == applying.ATTEMPTS_MAX


@dataclass(frozen=True)
class Here:
    """As much of a `Place` as waiting for the state needs."""

    scene: Scene
    feed: str = FEED

    def log(self) -> MemoryLog:
        return self.scene.log

    def followers(self) -> MemoryFollowers:
        return self.scene.followers


def test_a_number_that_a_dead_writer_took_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a killed sync leaves it on a feed where nobody posts; a page that is there, is."""
    monkeypatch.setattr(applying, "FOLLOW_MS", 0)
    scene = Scene()
    scene.post(op("a"))
    with pytest.raises(NotFollowing, match="stands at page 0, its log at 1"):
        applying.through(Here(scene))  # type: ignore[arg-type]
    lease = scene.followers.take(FEED, STATE, owner="state", now_ms=scene.now_ms)
    assert lease is not None
    scene.followers.save(lease, 1, now_ms=scene.now_ms)
    scene.log.take(FEED, 1)
    assert applying.through(Here(scene)) == 1  # type: ignore[arg-type]
