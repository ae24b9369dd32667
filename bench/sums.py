"""Which part of the write units of an operation's way goes into the sums of the state."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.sums import DynamoDBSums
from tidings.aws.runtime.clock import now_ms
from tidings.core.model.operations import line_from
from tidings.core.state.sum_keeper import SumKeeper
from tidings.core.state.sums import Sums
from tidings.twin.store import tables

from bench import engine, state_follower, units
from bench.sections import Section
from bench.workload import operations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TURNS = {1: 400, 10: 150, 28: 80, 40: 64, 56: 64, 100: 48, 200: 32, 1000: 16}  # by operations each
_TYPES = (1, 4, 8)
_PUSH_UNITS = 2  # of a turn: the lease of `push`, taken and let go
_PART_MAX = 0.03


class _Counted(DynamoDBSums):
    """Knows what its writes took, of the *units* of all."""

    def __init__(self, client: DynamoDBClient, table: str, units: Counter[str]) -> None:
        super().__init__(client, table)
        self._all, self.units = units, 0.0

    def write(self, feed: str, sums: Sums, note: bytes = b"") -> bool:
        before = self._all.total()
        done = super().write(feed, sums, note)
        self.units += self._all.total() - before
        return done


def measure() -> Section:
    rows, parts = [], []
    with engine.running() as running:
        used = units.counting(running.client)
        for count in _TURNS:
            found = [_part(running, used, count, types) for types in _TYPES]
            parts += found
            rows.append((f"turns of {count:,}", ", ".join(f"{part:.1%}" for part in found)))
    return Section(
        "Write units of sums",
        f"at most {_PART_MAX:.0%} of all that the way of an operation takes",
        rows,
        met=max(parts) <= _PART_MAX,
        notes=[
            f"By operations of a turn, with {_TYPES[0]}, {_TYPES[1]} and {_TYPES[2]} types: "
            "counter, page, rows, leases and checkpoints of two followers. ConsumedCapacity of "
            "DynamoDB Local."
        ],
    )


def _part(running: engine.Engine, used: Counter[str], count: int, types: int) -> float:
    feed, turns = f"sums-{count}-{types}", _TURNS[count]
    store = _Counted(running.client, tables.name_of("control"), used)
    projector = replace(running.projector, sums=SumKeeper(store, running.state))
    follower = state_follower.follower(running)
    raw = list(operations(count * turns, objects=count * turns // 2))
    used.clear()
    for first in range(0, len(raw), count):
        lines = [
            line_from(each | {"type": f"t{at % types}"}, now_ms=now_ms())
            for at, each in enumerate(raw[first : first + count], first)
        ]
        running.appender.append(feed, lines)
        follower.run(feed, projector)
    return store.units / (used.total() + turns * _PUSH_UNITS)
