"""The composition root's part for the archive: where there is none, None."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters

if TYPE_CHECKING:
    from tidings.core.archive.reader import ArchiveReader
    from tidings.core.archive.stores import ArchiveStore
    from tidings.core.followers.follower import Follower, Handler


@cache
def store() -> ArchiveStore | None:
    if not adapters.settings().archive:
        return None
    from tidings.aws.s3.archives import open_archive

    return open_archive(adapters.settings().archive, clients.objects)


@cache
def reader() -> ArchiveReader | None:
    from tidings.core.archive.reader import ArchiveReader

    kept = store()
    return None if kept is None else ArchiveReader(kept, adapters.count)


@cache
def handler() -> Handler:
    """
    Raises:
        WrongSetting: there is no archive to write.
    """
    from tidings.aws.config.settings import WrongSetting
    from tidings.core.archive.writer import Archiver

    kept = store()
    if kept is None:
        raise WrongSetting("TIDINGS_ARCHIVE", "", "names no archive that a follower could write")
    return Archiver(kept, adapters.count)


def with_habits(follower: Follower) -> Follower:
    """*follower* as the archive's goes about it."""
    from tidings.core.archive.writer import HABITS, Gatherer

    kept = adapters.log(), adapters.log(), adapters.followers(), now_ms, adapters.count
    return replace(follower, reader=Gatherer(*kept), habits=HABITS)
