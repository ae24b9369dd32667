"""The stores of `durable_streams`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core.model.cursors import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.durable_streams.stream import Stream

# What is read and written inside is one transaction, in which nobody else writes.
Together = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Extent:
    """A page of a stream: its messages lie behind *before*, the last one is at *last*."""

    before: Place
    last: Place


class StreamStore(Protocol):
    """The streams of each feed, and on which pages of its log their messages are."""

    def stream(self, feed: str, name: str) -> Stream | None:
        """None where there is none."""

    def write(self, feed: str, stream: Stream, extent: Extent | None = None) -> None:
        """Store *stream*, whatever is there, and that it has another page."""

    def remove(self, feed: str, name: str) -> None:
        """The stream and what is known of its pages, if it is there."""

    def extents(self, feed: str, name: str, after: Place, limit: int) -> Sequence[Extent]:
        """
        Its pages that have messages behind *after*, *limit* at most, in order.

        Those below the floor of the log MAY be left out.
        """
