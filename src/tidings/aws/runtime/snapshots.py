"""
SnapStart: many processes begin with the memory of one (ADR 54).

What differs from process to process must not be in it: ids, random keys, clients with their
connections and credentials, what was read of a clock. Builders make all of that when it is first
asked for, so each runs once before the snapshot, for what it imports, and forgets what it made.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tidings.aws.config.settings import is_snapshot
from tidings.aws.runtime import clients

if TYPE_CHECKING:
    from collections.abc import Callable


def prepare(build: Callable[[], object]) -> None:
    """
    Where Lambda takes a snapshot of this process: have in it what *build* imports, as the first
    request would. Elsewhere nothing happens, and the first request builds.
    """
    if not is_snapshot():
        return
    from snapshot_restore_py import register_after_restore, register_before_snapshot

    register_before_snapshot(rehearse, build)
    # The delays of botocore's retries come from it: processes would repeat at the same moments.
    register_after_restore(random.seed)


def rehearse(build: Callable[[], object]) -> None:
    """Build, then forget; what botocore read of its services' descriptions stays."""
    try:
        build()
    finally:
        forget()


def forget() -> None:
    """Build the stage and its clients again when they are next used."""
    from tidings.aws.stage import stage

    stage.cache_clear()
    for part in vars(clients).values():
        clear = getattr(part, "cache_clear", None)
        if clear is not None:
            clear()
