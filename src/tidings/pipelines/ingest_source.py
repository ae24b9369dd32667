"""
Reading: a source that is no feed is appended to one first, which the stores then follow.

With each batch goes an object of the type `READER` that says how far the reader is, in the same
page: what is in the feed and what the reader knows of it cannot come apart, and a reader that
begins again is told how it stood, however long ago that was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidings.client.errors import Refused
from tidings.client.produce.post import Poster, encode
from tidings.pipelines.names import READER

BATCH = 500  # operations, and one that says how far the reader is: below what a request may hold
COPY, COMPLETE = "copy", "complete"  # of a namespace: still being copied, or only followed

Standing = Mapping[str, Mapping[str, Any]]  # how far a reader is: JSON, by namespace
Known = Callable[[str], Iterable[str]]  # the ids of all objects of a type
_TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class Batch:
    """
    *operations* to append, and where the reader stands behind them: JSON, by namespace.

    Of each namespace `mode` is `copy` or `complete`; what else there is, is the reader's own.
    """

    operations: list[dict[str, Any]] = field(default_factory=list)
    standing: Standing = field(default_factory=dict)


class Reader(Protocol):
    """A source. It may give the same operations again."""

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Connect, and go on where *standing* says; *name* is of this reader and no other.

        *known* gives the ids of all objects of a type that the feed has now.
        """
        ...

    def read(self) -> Iterator[Batch]:
        """
        Batches of at most `BATCH` operations in order; an empty one while there is nothing new.

        A batch is in the feed when the next one is asked for. What ends has read everything.
        """
        ...

    def close(self) -> None: ...

    def __str__(self) -> str:
        """As it is shown to a person, without secrets."""
        ...


def batches(operations: list[dict[str, Any]], standing: Standing) -> Iterator[Batch]:
    """All of *operations*, the last batch with *standing*."""
    while len(operations) > BATCH:
        yield Batch(operations[:BATCH])
        operations = operations[BATCH:]
    yield Batch(operations, standing)


def append(poster: Poster, name: str, batch: Batch) -> None:
    """
    All of the *batch* of the reader *name* as one page, or as several where that is too large.

    The same batch again appends nothing for a day.

    Raises:
        Refused: an operation breaks a rule; those before it may have been appended.
    """
    operations, standing = batch.operations, batch.standing
    lines = [encode(each) for each in operations]
    if standing:
        state = {"event": "update", "type": READER, "id": name, "data": dict(standing)}
        lines.append(encode(state))
    key = hashlib.sha256(b"\n".join([name.encode(), *lines])).hexdigest()
    try:
        poster.post_lines(lines, key=key)
    except Refused as refused:
        if refused.status != _TOO_LARGE or len(operations) < 2:
            raise
        half = len(operations) // 2
        append(poster, name, Batch(operations[:half]))
        append(poster, name, Batch(operations[half:], standing))
