"""How fast the follower `state` projects a log it has fallen behind on."""

from __future__ import annotations

import time
import uuid

from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.core.followers.follower import STATE, Follower
from tidings.core.log.reader import Filler
from tidings.core.model.operations import line_from

from bench import engine
from bench.sections import Section, rate
from bench.workload import operations
from tests.fakes import MemoryWaker

_FEED = "main"
_OPERATIONS = 60_000
_BATCH = 100
_TARGET = 5_000


def follower(running: engine.Engine) -> Follower:
    filler = Filler(running.reader, engine.PAGE_MS)
    return Follower(
        running.followers, running.reader, filler, MemoryWaker(), sleep_ms, lambda: uuid.uuid4().hex
    )


def _ignore(metric: str, value: int) -> None:
    """Nobody reads metrics here."""


def _seconds(objects: int | None) -> float:
    with engine.running() as running:
        lines = [
            line_from(raw, now_ms=now_ms()) for raw in operations(_OPERATIONS, objects=objects)
        ]
        for at in range(0, len(lines), _BATCH):
            running.appender.append(_FEED, lines[at : at + _BATCH])
        handler, projector = follower(running), running.projector
        started = time.perf_counter()
        while running.followers.checkpoints(_FEED).get(STATE, 0) < _OPERATIONS // _BATCH:
            handler.run(_FEED, projector)
        return time.perf_counter() - started


def measure() -> Section:
    worst, usual = _seconds(None), _seconds(_OPERATIONS // 4)
    return Section(
        "The state follower",
        f"at least {_TARGET:,} operations a second on the twin's engine",
        [
            ("every operation on another object", rate(_OPERATIONS, worst)),
            ("four operations an object", rate(_OPERATIONS, usual)),
        ],
        met=_OPERATIONS / worst >= _TARGET,
        notes=[
            f"{_OPERATIONS:,} operations in pages of {_BATCH}, lease and checkpoints included, one "
            "process beside the engine."
        ],
    )
