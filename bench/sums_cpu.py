"""
What the sums of the state take of the CPU of an operation, in bulk on SQLite, where somebody asks.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tidings.core.followers.follower import Follower
from tidings.core.log.append import Appender
from tidings.core.log.reader import Filler, Reader
from tidings.core.model.operations import line_from
from tidings.core.state.projector import Projector
from tidings.core.state.sum_keeper import SumKeeper
from tidings.server.host import FOLLOWING, new_id, now_ms, sleep_ms
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.followers import SqliteFollowers
from tidings.server.sqlite.log import SqliteClaims, SqliteLog
from tidings.server.sqlite.state import (
    SqliteRemovedParents,
    SqliteState,
    SqliteSums,
    SqliteTombstones,
)

from bench.sections import Section
from bench.workload import ndjson, operations
from tests.fakes import MemoryProfiles, MemoryWaker

_FEED = "main"
_BATCH, _REQUESTS, _TURNS = 500, 20, 20
_WARM = 4  # turns, until most objects have a row
_OBJECTS = (100_000, 200)
_KEPT_MS = 10**9
_PART_MAX = 0.03


@dataclass(frozen=True)
class _Feed:
    """A feed on a file of its own."""

    database: Database
    appender: Appender
    follower: Follower
    projector: Projector

    @staticmethod
    def at(path: Path, *, sums: bool) -> _Feed:
        database = Database(path)
        log, followers = SqliteLog(database), SqliteFollowers(database)
        database.before_commit = followers.write
        reader = Reader(log, log, followers, now_ms, _ignore)
        state = SqliteState(database, lambda feed: sums)
        keeper = SumKeeper(SqliteSums(database), state, lambda feed: sums)
        waker, stores = MemoryWaker(), (SqliteRemovedParents(database), MemoryProfiles())
        tombstones = SqliteTombstones(database)
        return _Feed(
            database,
            Appender(log, SqliteClaims(database), now_ms, new_id, _KEPT_MS, _allow),
            Follower(
                followers, reader, Filler(reader, _KEPT_MS), waker, sleep_ms, new_id, FOLLOWING
            ),
            Projector(state, *stores, waker, now_ms, tombstones, keeper, _KEPT_MS, _KEPT_MS),
        )

    def cpu_us(self, requests: Sequence[bytes]) -> float:
        """Of an operation: parsed, appended, its row written."""
        began_s = time.process_time()
        for request in requests:
            lines = [line_from(json.loads(each), now_ms=now_ms()) for each in request.split(b"\n")]
            with self.database.transaction():
                self.appender.append(_FEED, lines)
        self.follower.run(_FEED, self.projector)
        return (time.process_time() - began_s) / (_BATCH * len(requests)) * 1e6


def _ignore(metric: str, value: int) -> None:
    """Nobody reads metrics here."""


def _allow(feed: str) -> None:
    """Every feed may be written to."""


def measure() -> Section:
    rows, parts = [], []
    for objects in _OBJECTS:
        plain_us, sums_us = _measured(objects)
        parts.append(sums_us / plain_us)
        figure = f"{plain_us:.1f} us without, {sums_us:+.1f} us of sums ({parts[-1]:.0%})"
        rows.append((f"an operation, of {objects:,} objects", figure))
    return Section(
        "CPU of sums on a server, where somebody asks for them",
        f"at most {_PART_MAX:.0%} of what an operation takes in bulk",
        rows,
        met=max(parts) <= _PART_MAX,
        notes=[
            f"Requests of {_BATCH} operations, {_REQUESTS} a turn of the follower: parsed, "
            "appended, rows written, without HTTP. CPU time, of a feed that is asked for its sums "
            "and of one that is not, in turns; the median of the differences. A feed that nobody "
            "asks has none. Others worked on the two cores as well."
        ],
    )


def _measured(objects: int) -> tuple[float, float]:
    """CPU of an operation without sums, and what they add, in microseconds."""
    raw = operations(_BATCH * _REQUESTS * _TURNS, objects=objects)
    plain, more = [], []
    with tempfile.TemporaryDirectory() as folder:
        without = _Feed.at(Path(folder, "without.db"), sums=False)
        with_sums = _Feed.at(Path(folder, "with.db"), sums=True)
        with closing(without.database), closing(with_sums.database):
            for turn in range(_TURNS):
                requests = [ndjson([next(raw) for _ in range(_BATCH)]) for _ in range(_REQUESTS)]
                pair = (without, with_sums) if turn % 2 else (with_sums, without)
                took = {each.database: each.cpu_us(requests) for each in pair}
                plain.append(took[without.database])
                more.append(took[with_sums.database] - took[without.database])
    return statistics.median(plain[_WARM:]), statistics.median(more[_WARM:])
