"""The composition root's part for the archive: where there is none, None."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from . import app, clients
from .clock import now_ms

if TYPE_CHECKING:
    from tidings.core.archive_ports import ArchiveStore
    from tidings.core.archive_reader import ArchiveReader
    from tidings.core.followers import Follower, Handler


@cache
def store() -> ArchiveStore | None:
    if not app.settings().archive:
        return None
    from .archive_urls import open_archive

    return open_archive(app.settings().archive, clients.objects)


@cache
def reader() -> ArchiveReader | None:
    from tidings.core.archive_reader import ArchiveReader

    kept = store()
    return None if kept is None else ArchiveReader(kept, app.count)


def handler() -> Handler:
    """
    Raises:
        WrongSetting: there is no archive to write.
    """
    from tidings.core.archiving import Archiver

    from .settings import WrongSetting

    kept = store()
    if kept is None:
        raise WrongSetting("TIDINGS_ARCHIVE", "", "names no archive that a follower could write")
    return Archiver(kept, app.count)


def with_habits(follower: Follower) -> Follower:
    """*follower* as the archive's goes about it."""
    from tidings.core.archiving import HABITS, Gatherer

    kept = app.log(), app.log(), app.followers(), now_ms, app.count
    return replace(follower, reader=Gatherer(*kept), habits=HABITS)
