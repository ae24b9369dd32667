"""How fast the corrections of a plan reach the log, and what one costs."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.core.log.reader import Filler
from tidings.core.model.operations import line_from
from tidings.core.sync import corrections
from tidings.core.sync.apply import Corrector, Outcome
from tidings.core.sync.corrections import NOWHERE, Position, correction

from bench import engine, units
from bench.sections import Section, rate
from bench.workload import operations

_FEED = "main"
_CORRECTIONS = 50_000  # a part as a plan is written
_KNOWN = 25_000  # of these the state has a row
_BATCH = 100
_TARGET_UNITS = 0.06  # of the log, as for an operation that is posted in batches of 100


@dataclass(frozen=True, slots=True)
class _Run:
    outcome: Outcome
    seconds: float
    written: float
    read: float


def _corrector(running: engine.Engine) -> Corrector:
    return Corrector(
        running.state,
        Filler(running.reader, engine.PAGE_MS),
        sleep_ms,
        lambda: uuid.uuid4().hex,
        frozenset({_FEED}),
        running.tombstones,
    )


def _ignore(metric: str, value: int) -> None:
    """Nobody reads metrics here."""


def _fill(running: engine.Engine, lines: list[str]) -> int:
    """The first objects are in the log and in the state; the checkpoint of the follower."""
    projector, lease = running.leading(_FEED)
    for at in range(0, _KNOWN, _BATCH):
        page = running.appender.append(_FEED, lines[at : at + _BATCH])
        projector.handle(_FEED, [page])
    return running.followers.save(lease, _KNOWN // _BATCH, now_ms=now_ms()).checkpoint


def _part(lines: list[str]) -> list[bytes]:
    """Each object once, those that are known where they stand."""
    places = [Position(at // _BATCH + 1, at % _BATCH) for at in range(_KNOWN)]
    places += [NOWHERE] * (len(lines) - _KNOWN)
    made = (correction(line, at) for line, at in zip(lines, places, strict=True))
    return [corrections.encode(each).encode() for each in made]


def _apply(running: engine.Engine, through: int, part: list[bytes]) -> _Run:
    written, read = (units.counting(running.client, calls) for calls in (units.WRITES, units.READS))
    started = time.perf_counter()
    outcome = _corrector(running).apply(_FEED, through, part)
    seconds = time.perf_counter() - started
    return _Run(outcome, seconds, sum(written.values()), sum(read.values()))


def measure() -> Section:
    lines = [line_from(raw, now_ms=now_ms()) for raw in operations(_CORRECTIONS)]
    part = _part(lines)
    with engine.running() as running:
        through = _fill(running, lines)
        first = _apply(running, through, part)
        second = _apply(running, through, part)
    assert (first.outcome.applied, second.outcome.done) == (_CORRECTIONS, _CORRECTIONS)
    return Section(
        "Applying corrections",
        f"at most {_TARGET_UNITS} write units a correction, in pages of 1,000",
        [
            ("corrections appended", rate(_CORRECTIONS, first.seconds)),
            ("write units a correction, counter and page", f"{first.written / _CORRECTIONS:.3f}"),
            ("read units a correction", f"{first.read / _CORRECTIONS:.3f}"),
            ("the same part again, found as done", rate(_CORRECTIONS, second.seconds)),
            ("its write units", f"{second.written:.0f}"),
        ],
        met=first.written / _CORRECTIONS <= _TARGET_UNITS and not second.written,
        notes=[
            f"One part of {_CORRECTIONS:,} corrections on the twin's engine, half of them on "
            "objects that have a row; one process beside the engine, reading and checking the "
            "part included. The follower `state` stands still meanwhile, so each of the five "
            "sections reads what the ones before it appended. Read units are one for each row "
            "that is looked up, and those of the log behind the state; AWS counts one also for "
            "an object without a row, this engine does not."
        ],
    )
