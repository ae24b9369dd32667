"""
Append to a feed the operations of a source that is not a feed. The stores follow this feed.

Each batch is appended in one page with an object of the type `READER`, which stores the position of
the reader. So the data and the position are always consistent. A reader that restarts receives its
last position, even if the position is old, because the state of the feed keeps this object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidings.client.errors import Refused
from tidings.client.poster import Poster, encode
from tidings.pipelines.messages import READER

BATCH = 500  # the most operations of a batch; the reader's object still fits into the request
COPY, COMPLETE = "copy", "complete"  # modes of a namespace: it is being copied, or is copied

ReaderState = Mapping[str, Mapping[str, Any]]  # the position of a reader in each namespace, as JSON
Known = Callable[[str], Iterable[str]]  # a function that returns the ids of all objects of a type
_TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class Batch:
    """
    The *operations* to append, and the *state*: the position of the reader after them.

    *state* maps each namespace to JSON. The field `mode` is `copy` or `complete`; the reader
    defines all other fields.
    """

    operations: list[dict[str, Any]] = field(default_factory=list)
    state: ReaderState = field(default_factory=dict)


class Reader(Protocol):
    """A source. It may return the same operations again."""

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        """
        Connect, and resume at the position *state*. *name* is unique to this reader.

        *known* returns the ids of all objects of a type that the feed has now.
        """
        ...

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of at most `BATCH` operations, in order; an empty batch if nothing is new.

        The caller requests the next batch only when the previous batch is in the feed. The iterator
        ends when everything has been read.
        """
        ...

    def close(self) -> None: ...

    def __str__(self) -> str:
        """Return a description for people, without secrets."""
        ...


def batches(operations: list[dict[str, Any]], state: ReaderState) -> Iterator[Batch]:
    """Divide *operations* into batches; only the last batch has the *state*."""
    while len(operations) > BATCH:
        yield Batch(operations[:BATCH])
        operations = operations[BATCH:]
    yield Batch(operations, state)


def append(poster: Poster, name: str, batch: Batch) -> None:
    """
    Append the *batch* of the reader *name* as one page, or as several pages if it is too large.

    The idempotency key of a request is random (`post_lines`). A key made from the content would
    drop a batch with the same content as an earlier one, such as the deletions after a second
    truncation.

    Raises:
        Refused: an operation is invalid. The operations before it may have been appended.
    """
    operations, state = batch.operations, batch.state
    lines = [encode(each) for each in operations]
    if state:
        document = {"event": "update", "type": READER, "id": name, "data": dict(state)}
        lines.append(encode(document))
    try:
        poster.post_lines(lines)
    except Refused as refused:
        if refused.status != _TOO_LARGE or len(operations) < 2:
            raise
        half = len(operations) // 2
        append(poster, name, Batch(operations[:half]))
        append(poster, name, Batch(operations[half:], state))
