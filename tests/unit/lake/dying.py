"""Archives in a folder, and followers of one, that end who uses them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark import cloudpickle

from tidings.core.archive.segments import Span
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.lake import warehouse
from tidings.lake.tables import Table

if __name__ != "__main__":
    # The tasks that are sent it know nothing of tests.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

# The points at which a follower of tables is killed in its first batch; the last one is the start
# of its second batch.
KILLS = (
    "inside history",
    "after history",
    "inside latest",
    "after latest",
    "inside video",
    "after video",
    "after checkpoint",
)
_LOOK_S = 0.001


class Killed(BaseException):
    """No code catches it, so for the archive it is the end of a process."""


class Dying(FolderArchive):
    """Kills the process before or after a put or a removal; the file *fired* records that."""

    def __init__(self, folder: Path, step: str, fired: Path) -> None:
        super().__init__(folder)
        self._step, self._fired = step, fired

    def put(self, feed: str, span: Span, body: bytes) -> None:
        self._die("before put")
        super().put(feed, span, body)
        self._die("after put")

    def remove(self, feed: str, span: Span) -> None:
        self._die("before remove")
        super().remove(feed, span)
        self._die("after remove")

    def _die(self, step: str) -> None:
        if step == self._step:
            with self._fired.open("a") as file:
                file.write(f"{step}\n")
            raise Killed


class Losing(FolderArchive):
    """Another process removes each part between its listing and its reading."""

    def get(self, feed: str, span: Span) -> bytes | None:
        self.remove(feed, span)
        return super().get(feed, span)


def follow(folder: Path, point: str) -> None:
    """Let the tables below *folder* follow its archive, a page a batch, until *point* is reached.
    Then this process and all that it started end by SIGKILL, and the file `fired` has the point.
    """
    from tests import spark_session
    from tests.unit.lake.parts import Scene
    from tidings.lake.follow import Source

    _arm(folder, *point.split())
    with spark_session.session(folder / "spark") as spark:
        scene = Scene(spark, folder)
        source = Source({**scene.source.options, "maxPages": "1"})
        scene.follow('{"video": {"n": "bigint"}}', source)


def _arm(folder: Path, when: str, kind: str) -> None:
    """Wrap the commits of the tables, so that one of the kind *kind* kills the process."""
    kill = partial(_kill, folder / "fired", f"{when} {kind}")
    commits = [0]

    def wrap(name: str) -> None:
        original: Callable[..., None] = getattr(Table, name)

        def commit(self: Table, *arguments: object) -> None:
            ours = self.called.endswith(kind)
            commits[0] += self.called.endswith("history")
            if kind == "checkpoint" and commits[0] > 1:
                kill()
            if ours and when == "inside":
                _kill_at_first_file(self, kill)
            original(self, *arguments)
            if ours and when == "after":
                kill()

        setattr(Table, name, commit)

    for name in ("append", "merge"):
        wrap(name)


def _kill_at_first_file(table: Table, kill: Callable[[], None]) -> None:
    """Once a file of the commit is there, of which no snapshot of the table knows."""
    folder = Path(table.warehouse.url) / table.warehouse.database / table.called
    before, found = (
        set(folder.glob("data/**/*.parquet")),
        warehouse.metadata_file(table.warehouse, table.called),
    )

    def look() -> None:
        while set(folder.glob("data/**/*.parquet")) <= before:
            time.sleep(_LOOK_S)
        if warehouse.metadata_file(table.warehouse, table.called) == found:
            kill()

    threading.Thread(target=look, daemon=True).start()


def _kill(fired: Path, point: str) -> None:
    with fired.open("a") as file:
        file.write(f"{point}\n")
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    follow(Path(sys.argv[1]), sys.argv[2])
