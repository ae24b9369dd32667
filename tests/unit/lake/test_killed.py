"""The process that follows a feed is killed at each of its steps, as `kill -9` does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.core.scene import line
from tests.unit.lake import dying, readers
from tests.unit.lake.parts import Scene, entries, fold, kept

# Each is a Spark of its own, 10 s of two cores: `make kills` takes all of them.
POINTS = dying.KILLS if os.environ.get("KILLS") == "all" else ("inside latest",)
COLD_S = 240.0  # until Spark has started and done two batches, on a busy machine


def test_killed_at_every_step_nothing_is_lost_doubled_or_stale(scene: Scene) -> None:
    """It is killed while a table's files are written, between two tables, and before and after the
    checkpoint. Each time the tables have a prefix of the log, and the next run continues to its
    end.
    """
    for number in range(1, 2 * len(POINTS) + 2):
        event = "delete" if number % 3 == 0 else "update"
        scene.put(
            kept(
                number,
                line("a", data={"n": number}),
                line("bcd"[number % 3], event=event, data={"n": number}),
            )
        )

    for point in POINTS:
        _follow(scene.folder, point)
        _check(scene)
    assert (scene.folder / "fired").read_text().splitlines() == list(POINTS)

    scene.follow('{"video": {"n": "bigint"}}')
    history, latest, videos = readers.tables(scene)
    assert history == scene.entries()
    assert latest == fold(history)
    assert videos == readers.living(history)


def _follow(folder: Path, point: str) -> None:
    """Run in a process of its own, which has to end by the kill and nothing else."""
    with (folder / "log").open("a") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.unit.lake.dying", str(folder), point],
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=COLD_S,
            check=False,
        )
    assert done.returncode == -signal.SIGKILL, (folder / "log").read_text()[-2000:]


def _check(scene: Scene) -> None:
    """Check each table by itself: it has everything up to its position, and nothing else."""
    every = list(entries(scene.pages()))
    history, latest, videos = readers.tables(scene)
    places = readers.places(scene)
    assert history == [each for each in every if each[0] <= places["main_history"]]
    assert latest == fold([each for each in every if each[0] <= places["main_latest"]])
    seen = [each for each in every if each[0] <= places["main_type_video"]]
    assert videos == readers.living(seen)
