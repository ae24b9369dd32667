"""One reader or store of a running pipeline: what it does until it is stopped, and how it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tidings.client.backoff import Backoff
from tidings.client.errors import FellOff, Lost, Refused
from tidings.pipelines.errors import Away, WrongPipeline

ATTEMPTS = 3  # at one message: what cures itself has by then

Say = Callable[..., None]
Tell = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Progress:
    """
    *state*: starting, running, standing by, failing, failed, done, stopped. Of the *records* taken
    so many were *written*: functions leave others out.
    """

    name: str
    state: str = "starting"
    records: int = 0
    written: int = 0
    batches: int = 0
    failures: int = 0
    error: str = ""

    def count(self, records: int, written: int | None = None) -> None:
        """A batch was kept; None: all of it was written."""
        self.state, self.error = "running", ""
        self.records += records
        self.written += records if written is None else written
        self.batches += 1


@dataclass(slots=True)
class Opening:
    """What a line writes to or reads from, as it is opened: again with each attempt."""

    was_open: bool = False

    @contextmanager
    def tried(self) -> Iterator[None]:
        """
        Raises:
            Away: it was open before; a wrong address or password ends an attempt like any failure.
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
    """What a line does."""

    progress: Progress

    def once(self, stopping: threading.Event) -> None:
        """
        Until it is stopped, or is done, or something is raised.

        Raises:
            Away: no attempt; try again until it is back.
        """
        ...

    def park(self) -> str:
        """
        Put aside the message that it failed at; its id, "" where that is not wanted.

        Raises:
            Lost: the feed is away, or knows of no such failure; try the message again.
        """
        ...

    def close(self) -> None: ...


def run(work: Work, stopping: threading.Event, say: Say, attempts: int) -> None:
    """Again and again, until it is stopped, done, or has failed *attempts* times at the same."""
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
    """Whether there is a point in going on behind so many failures."""
    try:
        parked = work.park()
    except Lost:
        return True
    if parked:
        say("parked", path=work.progress.name, id=parked, error=work.progress.error)
    return bool(parked)


def _once(work: Work, stopping: threading.Event, say: Say) -> bool:
    """What ended it is told; whether it is away."""
    try:
        work.once(stopping)
    except Exception as error:  # noqa: BLE001 whatever a store or a source raises
        progress = work.progress
        progress.failures += 1
        # What a feed refuses it would refuse again.
        progress.state = "failed" if isinstance(error, (FellOff, Refused)) else "failing"
        progress.error = _text(error)
        say("error", path=progress.name, error=progress.error)
        return isinstance(error, Away)
    return False


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
