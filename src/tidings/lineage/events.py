"""What is told of a run, before it is OpenLineage's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidings.lineage.datasets import Dataset


class State(StrEnum):
    """Of a run, as OpenLineage has them."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Job:
    """What is run again and again. *kind* is SYNC, TABLES or PIPELINE; *streams*: it has no end."""

    name: str
    kind: str
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """*rows* is None where nobody counted."""

    dataset: Dataset
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """*run* is a UUID."""

    state: State
    at_ms: int
    run: str
    job: Job
    inputs: tuple[Counted, ...]
    outputs: tuple[Counted, ...]
    error: str = ""
