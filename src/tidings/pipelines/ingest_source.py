"""Append to a feed the operations of a source that is not a feed. The stores follow this feed.

Each batch is appended together with an object of the type `READER`, which stores the position of
the reader. Batch and object are in the same page. If the batch needs several pages, the object is
in the last of them. So the feed never has a position without the data before this position. A
reader that restarts receives its last position, even if the position is old, because the state of
the feed keeps the object of the type `READER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidings.client.errors import Refused
from tidings.client.poster import Poster, encode
from tidings.core.limits import TAGS_MAX
from tidings.pipelines.messages import READER
from tidings.pipelines.row_rules import Operation, refusal_of

BATCH = 500  # operations per batch; the reader's object still fits into the request
COPY, COMPLETE = "copy", "complete"  # the modes (`Batch`): the copy is running, or is complete

ReaderState = Mapping[str, Mapping[str, Any]]  # the position in each part of a source, as JSON
# By the id of an object: the digest of its data (`documents.digest`), 0 if the digest is unknown,
# or None if another producer has appended the object.
Digests = Mapping[str, int | None]
Known = Callable[[str], Digests]  # a function that returns the objects of a type in the feed
Refit = Callable[[Operation, str], Operation | None]  # `SizeRule.refit`
_TOO_LARGE = 413
_OWNER = "tidings.pipeline/"  # the prefix of the tag of objects that a pipeline keeps as a copy


@dataclass(frozen=True, slots=True)
class Batch:
    """The *operations* to append, and the *state*: the position of the reader after them.

    A key of *state* names a part of the source that has its own position, such as a type, a topic,
    a queue or a file. A value describes the position as JSON. The field `mode` is `copy` or
    `complete`; the reader defines all other fields.
    """

    operations: list[dict[str, Any]] = field(default_factory=list)
    state: ReaderState = field(default_factory=dict)


class Reader(Protocol):
    """A source. It may return the same operations again.

    A reader with the attribute `is_copy` deletes objects that the source no longer has. Its objects
    have the tag `owner_tag`.
    """

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        """Connect, and resume at the position *state*. *name* is unique to this reader.

        *known* returns the objects of a type that are in the feed now.
        """

    def read(self) -> Iterator[Batch]:
        """Yield batches of at most `BATCH` operations, in order; an empty batch if nothing is new.

        The caller requests the next batch only when the previous batch is in the feed. The iterator
        ends when everything has been read.
        """

    def close(self) -> None: ...

    def __str__(self) -> str:
        """Return a description for people, without secrets."""


def batches(operations: list[dict[str, Any]], state: ReaderState) -> Iterator[Batch]:
    """Divide *operations* into batches; only the last batch has the *state*."""
    while len(operations) > BATCH:
        yield Batch(operations[:BATCH])
        operations = operations[BATCH:]
    yield Batch(operations, state)


def owner_tag(name: str) -> str:
    """Return the tag of the objects that the reader or store *name* has written as a copy."""
    return f"{_OWNER}{name}"


def owned(operation: Mapping[str, Any], tag: str) -> dict[str, Any]:
    """Return *operation* with the *tag* of its owner.

    A deletion gets no tag, and neither does an operation that already has `TAGS_MAX` tags.
    """
    if operation["event"] == "delete":
        return dict(operation)
    others = [each for each in operation.get("tags") or () if not each.startswith(_OWNER)]
    return {**operation, "tags": [*others, tag][:TAGS_MAX]}


def append(poster: Poster, name: str, batch: Batch, refit: Refit | None = None) -> None:
    """Append *batch* of the reader *name* as one page, or as several if it is too large.

    *refit* returns another operation, or None, in place of one that the feed would refuse because
    it is too large.

    The idempotency key of a request is random (`post_lines`). With a key made from the content, the
    feed would drop a batch that has the same content as an earlier batch, such as the deletions
    after a second truncation.

    Raises:
        Refused: an operation is invalid. The operations before it may have been appended.
    """
    operations, state = list[dict[str, Any]](), batch.state
    lines = list[bytes]()
    for each in batch.operations:
        line = encode(each)
        if refit and (reason := refusal_of(each, line)):
            if (fitting := refit(each, reason)) is None:
                continue
            each, line = fitting, encode(fitting)
        operations.append(each)
        lines.append(line)
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
