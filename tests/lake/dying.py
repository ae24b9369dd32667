"""Archives in a folder that end who uses them, or lose what was listed."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import cloudpickle
from tidings.core.archive.segments import Span
from tidings.web.outbound.folder_archive import FolderArchive

# The tasks that are sent it know nothing of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Killed(BaseException):
    """Nobody catches it: the end of a process, as far as the archive can tell."""


class Dying(FolderArchive):
    """Ends its user before or after a put or a removal; the file *fired* tells that it did."""

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
    """Somebody else removes each part between its listing and its reading."""

    def get(self, feed: str, span: Span) -> bytes | None:
        self.remove(feed, span)
        return super().get(feed, span)
