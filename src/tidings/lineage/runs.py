"""Report the runs of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from tidings.lineage.datasets import Dataset
from tidings.lineage.events import Counted, Event, Job, State
from tidings.lineage.sender import HIDDEN, Send, sending, without_secrets

RUNNING_S = 60  # between events of a running job: a catalogue shows states, not progress
ERROR_CHARS_MAX = 2_000  # of the text of an error: some contain whole plans of Spark


@dataclass
class Run:
    """One run. *secrets* are removed from the texts of errors. All methods return at once."""

    job: Job
    send: Send
    reads: Sequence[Dataset] = ()
    writes: Sequence[Dataset] = ()
    secrets: Sequence[str] = field(default=(), repr=False)
    ended: bool = False

    def __post_init__(self) -> None:
        self._id = str(UUID(bytes=os.urandom(16), version=4))
        self._inputs = {_key(each): Counted(each) for each in self.reads}
        self._outputs = {_key(each): Counted(each) for each in self.writes}
        self._told_s = 0.0

    def start(self) -> None:
        self._tell(State.START)

    def read(self, dataset: Dataset, rows: int) -> None:
        """Set the number of *rows* read from *dataset* since the start of the run."""
        self._inputs[_key(dataset)] = Counted(dataset, rows)

    def wrote(self, dataset: Dataset, rows: int) -> None:
        """Set the number of *rows* written to *dataset* since the start of the run."""
        self._outputs[_key(dataset)] = Counted(dataset, rows)

    @property
    def is_due(self) -> bool:
        """Return True if `running` would send an event."""
        return time.monotonic() - self._told_s >= RUNNING_S

    def running(self) -> None:
        """Report that the run continues; an event is sent at most every `RUNNING_S`."""
        if self.is_due:
            self._tell(State.RUNNING)

    def end(self, state: State, error: str = "") -> None:
        """Report the end of the run; later calls do nothing."""
        if not self.ended:
            self.ended = True
            self._tell(state, error)

    def _tell(self, state: State, error: str = "") -> None:
        self._told_s = time.monotonic()
        at_ms = time.time_ns() // 1_000_000
        counted = tuple(self._inputs.values()), tuple(self._outputs.values())
        self.send(Event(state, at_ms, self._id, self.job, *counted, self._public(error)))

    def _public(self, error: str) -> str:
        for secret in filter(None, self.secrets):
            error = error.replace(secret, HIDDEN)
        return without_secrets(error)[:ERROR_CHARS_MAX]


@contextmanager
def told(
    job: Job,
    reads: Sequence[Dataset] = (),
    writes: Sequence[Dataset] = (),
    secrets: Sequence[str] = (),
) -> Iterator[Run]:
    """
    Report a run of *job*, from the start to the end of this context.

    An exception fails the run; Ctrl-C aborts it.
    """
    with sending() as send:
        run = Run(job, send, reads, writes, secrets)
        run.start()
        try:
            yield run
        except KeyboardInterrupt:
            run.end(State.ABORT)
            raise
        except BaseException as error:
            run.end(State.FAIL, str(error) or type(error).__name__)
            raise
        run.end(State.COMPLETE)


def _key(dataset: Dataset) -> tuple[str, str]:
    return dataset.namespace, dataset.name
