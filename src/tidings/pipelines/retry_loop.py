"""Run one reader or store of a pipeline until it is stopped, and record its progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tidings.client.errors import FellOff, Lost, Refused
from tidings.client.retries import Backoff
from tidings.pipelines.errors import Away, WrongPipeline

ATTEMPTS = 3  # at one message: temporary failures have passed by then

Say = Callable[..., None]
Tell = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Progress:
    """
    The state and counters of a reader or a store.

    *state* is starting, running, standing by, failing, failed, done or stopped. *records* counts
    the operations read, and *written* those written: functions may leave some out.
    """

    name: str
    state: str = "starting"
    records: int = 0
    written: int = 0
    batches: int = 0
    failures: int = 0
    error: str = ""

    def count(self, records: int, written: int | None = None) -> None:
        """Count a batch that was written. If *written* is None, all its records were written."""
        self.state, self.error = "running", ""
        self.records += records
        self.written += records if written is None else written
        self.batches += 1


@dataclass(slots=True)
class Opening:
    """The connection to a store or a source, which is opened again at each attempt."""

    was_open: bool = False

    @contextmanager
    def tried(self) -> Iterator[None]:
        """
        Open the connection in this context.

        Raises:
            Away: it was open before. On the first attempt a wrong address or password raises its
                own error, and counts as a failure.
        """
        try:
            yield
        except (FellOff, Refused, WrongPipeline):
            raise
        except Exception as error:
            if not self.was_open:
                raise
            raise Away(_text(error)) from error
        self.was_open = True


class Work(Protocol):
    """The work of one reader or store."""

    progress: Progress

    def once(self, stopping: threading.Event) -> None:
        """
        Run until stopped, done, or an error is raised.

        Raises:
            Away: do not count this attempt; retry until the store or source is available.
        """
        ...

    def park(self) -> str:
        """
        Park the message that failed, and return its id; return "" if parking is not enabled.

        Raises:
            Lost: the feed is not available, or has no record of this failure; retry the message.
        """
        ...

    def close(self) -> None: ...


def run(work: Work, stopping: threading.Event, say: Say, attempts: int) -> None:
    """Repeat *work* until it is stopped, done, or has failed *attempts* times without progress."""
    progress, backoff, tried = work.progress, Backoff(), 0
    try:
        while not stopping.is_set():
            before = progress.records
            is_away = _once(work, stopping, say)
            if stopping.is_set() or progress.state in ("failed", "done"):
                break
            if progress.records > before:
                tried, backoff = 0, Backoff()
            tried += not is_away
            if tried >= attempts:
                if not _is_past(work, say):
                    progress.state = "failed"
                    break
                tried = 0
            stopping.wait(backoff.next_s())
    finally:
        work.close()
        if progress.state not in ("failed", "done"):
            progress.state = "stopped"


def _is_past(work: Work, say: Say) -> bool:
    """
    Return True if work should continue after *attempts* failures.

    It should if its message was parked, or if the feed could not be asked to park it.
    """
    try:
        parked = work.park()
    except Lost:
        return True
    if parked:
        say("parked", path=work.progress.name, id=parked, error=work.progress.error)
    return bool(parked)


def _once(work: Work, stopping: threading.Event, say: Say) -> bool:
    """Run *work* once and report its error; return True if its store or source is not available."""
    try:
        work.once(stopping)
    except Exception as error:  # noqa: BLE001 a store or a source may raise anything
        progress = work.progress
        progress.failures += 1
        # The feed would reject the same request again.
        progress.state = "failed" if isinstance(error, (FellOff, Refused)) else "failing"
        progress.error = _text(error)
        say("error", path=progress.name, error=progress.error)
        return isinstance(error, Away)
    return False


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
