"""
SnapStart: many processes start from the memory of one (ADR 54).

The snapshot must not contain state that differs between processes: ids, random keys, times, clients
with their connections and credentials. Builders create all of this on first use. So each builder
runs once before the snapshot, for its imports, and its results are discarded.
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
    Import the modules that *build* needs before Lambda takes a snapshot of this process.

    Without SnapStart nothing happens, and the first request builds.
    """
    if not is_snapshot():
        return
    from snapshot_restore_py import register_after_restore, register_before_snapshot

    register_before_snapshot(rehearse, build)
    # The delays of botocore's retries come from it: all processes would retry at the same moments.
    register_after_restore(random.seed)


def rehearse(build: Callable[[], object]) -> None:
    """Build, then discard the results; botocore's parsed service descriptions stay."""
    try:
        build()
    finally:
        forget()


def forget() -> None:
    """Discard the stage and its clients, so that they are built again on the next use."""
    from tidings.aws.stage import stage

    stage.cache_clear()
    for part in vars(clients).values():
        clear = getattr(part, "cache_clear", None)
        if clear is not None:
            clear()
