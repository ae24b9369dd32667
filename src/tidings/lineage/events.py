"""The events of a run, before they are converted to OpenLineage's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidings.lineage.datasets import Dataset


class State(StrEnum):
    """The states of a run in OpenLineage."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Job:
    """
    A job with repeated runs. *kind* is SYNC, TABLES or PIPELINE; *streams*: its runs have no end.
    """

    name: str
    kind: str
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """A dataset with the number of *rows*, or None if they were not counted."""

    dataset: Dataset
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the run with the UUID *run*."""

    state: State
    at_ms: int
    run: str
    job: Job
    inputs: tuple[Counted, ...]
    outputs: tuple[Counted, ...]
    error: str = ""
