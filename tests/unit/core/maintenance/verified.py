"""A feed whose state is verified and rebuilt, and functions that break its rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.fakes import MemorySpill, MemoryState
from tests.unit.core.scene import FEED, TOMBSTONE_MS, Scene
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.maintenance.verify import Compared, Rebuilder, Repaired, Verifier
from tidings.core.state.rows import Difference, Row

BUCKETS = range(limits.BUCKETS)


def verifier(
    scene: Scene, buckets: Collection[int] = BUCKETS, archive: ArchiveReader | None = None
) -> Verifier:
    """Return a verifier that has read the log, and before it *archive*."""
    made = Verifier(
        feed=FEED,
        states=scene.state,
        reader=scene.reader,
        spill=MemorySpill(buckets),
        tombstone_ms=TOMBSTONE_MS,
        archive=archive,
    )
    for _ in made.read():
        pass
    return made


def compared(scene: Scene, archive: ArchiveReader | None = None) -> list[Compared]:
    made = verifier(scene, archive=archive)
    return [made.compare(bucket) for bucket in made.spill.buckets]


def differences(scene: Scene, archive: ArchiveReader | None = None) -> list[Difference]:
    return [each for result in compared(scene, archive) for each in result.differences]


def named(scene: Scene, archive: ArchiveReader | None = None) -> list[str]:
    """Return `stale video/a`, ..."""
    return sorted(f"{each.kind.value} {each.key}" for each in differences(scene, archive))


def rebuilt(scene: Scene, archive: ArchiveReader | None = None) -> Repaired:
    rebuilder = Rebuilder(verifier(scene, archive=archive), scene.state)
    return sum((rebuilder.repair(bucket) for bucket in BUCKETS), Repaired(0, 0))


def rows(state: MemoryState) -> dict[str, Row]:
    return {row.key: row for bucket in BUCKETS for row in state.read(FEED, bucket)}


def alter(scene: Scene, key: str, **fields: Any) -> Row:
    """Change the row of *key* by hand; how it was."""
    before = rows(scene.state)[key]
    scene.state._buckets[FEED, before.bucket][key] = before._replace(**fields)
    return before


def remove(scene: Scene, key: str) -> Row:
    row = rows(scene.state)[key]
    scene.state._buckets[FEED, row.bucket].pop(key)
    return row
