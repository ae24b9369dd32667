"""The interface of the feed that a sync corrects: by its tables (`target`), or over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tidings.core.state.rows import RowReader
from tidings.core.sync.apply import Looked, Outcome
from tidings.core.sync.watermark import Moment, Reached
from tidings.sync.state import StateSource


class Corrections(Protocol):
    """Appends corrections for objects that have not moved: `tidings.core.sync.apply`."""

    def look(self, feed: str, keys: Sequence[str]) -> Looked:
        """Look up rows like `Corrector.look`."""
        ...

    def apply(self, feed: str, through: int, part: Iterable[bytes], behind: int = 0) -> Outcome:
        """Apply corrections like `Corrector.apply`."""
        ...


class Progress(Protocol):
    """The progress of the log of a feed, and of its state."""

    @property
    def feed(self) -> str: ...

    def checkpoint(self) -> int:
        """Return the last page that the state includes."""
        ...

    def end(self) -> int:
        """Return the last readable page; the next one is missing, or still being written."""
        ...


class Feed(Progress, Protocol):
    """
    One feed. All methods may raise:

        TidingsError: the feed rejects the request, or does not respond.
    """

    def check(self) -> None:
        """Check that the caller may correct the feed, before a plan is made."""
        ...

    def watermark(self, as_of: str) -> Reached | Moment:
        """Return the watermark for *as_of*, the start of a dump (`sync.watermark`)."""
        ...

    def source(self) -> StateSource: ...

    def rows(self) -> RowReader: ...

    def corrector(self) -> Corrections: ...
