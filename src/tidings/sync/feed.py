"""What a sync asks of the feed that it corrects: by its tables (`target`), or over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tidings.core.state.rows import RowReader
from tidings.core.sync.apply import Looked, Outcome
from tidings.core.sync.watermark import Moment, Reached
from tidings.sync.state import StateSource


class Corrections(Protocol):
    """Appends corrections where their objects have not moved: `tidings.core.sync.apply`."""

    def look(self, feed: str, keys: Sequence[str]) -> Looked:
        """As `Corrector.look`."""
        ...

    def apply(self, feed: str, through: int, part: Iterable[bytes], behind: int = 0) -> Outcome:
        """As `Corrector.apply`."""
        ...


class Progress(Protocol):
    """How far the log of a feed goes, and its state."""

    @property
    def feed(self) -> str: ...

    def checkpoint(self) -> int:
        """The last page that is in the state."""
        ...

    def end(self) -> int:
        """The last page that can be read: behind it there is none, or a writer in flight."""
        ...


class Feed(Progress, Protocol):
    """
    One feed.

    Each raises:
        TidingsError: it refuses, or does not answer.
    """

    def check(self) -> None:
        """Return if whoever asks may correct it, so that no plan is made in vain."""
        ...

    def watermark(self, as_of: str) -> Reached | Moment:
        """What *as_of* says of when a dump began (`sync.watermark`)."""
        ...

    def source(self) -> StateSource: ...

    def rows(self) -> RowReader: ...

    def corrector(self) -> Corrections: ...
