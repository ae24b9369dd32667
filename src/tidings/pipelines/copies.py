"""Compare the number of objects that a copy wrote with the number in its store."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable

from tidings.client.worker import is_entry
from tidings.pipelines.bodies import object_of
from tidings.pipelines.messages import Message, WrongPipeline

# Eight bytes an object: two of 100 million are equal once in 4,000 copies.
_HASH_MAX = (1 << 64) - 1
_SHARDS = 256  # only the hashes of one shard are in a set, which needs ten times their memory
_COUNTS, _AGAIN_S = 3, 2.0  # a count may be read from a replica that is late


class CopyDiffers(WrongPipeline):
    """After a copy, the store has another number of objects than the copy wrote."""


class CopyCount:
    """The objects that a copy wrote, since its `reset`.

    The number is unknown if another worker wrote a part of the copy, if it contained a deletion or
    if a message of the log was among it, such as a parked message that was sent again.
    """

    def __init__(self) -> None:
        self._hashes: list[array[int]] | None = None
        self._fence = 0

    def hold(self, fence: int) -> None:
        """Continue with the lease *fence*; another worker had a lease if one is missing."""
        if fence > self._fence + 1:
            self._hashes = None
        self._fence = fence

    def add(self, messages: Iterable[Message]) -> None:
        """Add messages that the store has written."""
        for message in messages:
            if message.is_command:
                self._hashes = [array("Q") for _ in range(_SHARDS)]
            elif self._hashes is None:
                continue
            elif message.is_gone or is_entry(message.id) or "/" in message.namespace:
                self._hashes = None  # with a slash, two objects may have the same name
            else:
                found = hash(object_of(message)) & _HASH_MAX
                self._hashes[found % _SHARDS].append(found)

    def check(self, store: str, consumer: str, count: Callable[[], int | None]) -> None:
        """Compare the number of objects with that of *store*, if both are known.

        Raises:
            CopyDiffers: the numbers differ.
        """
        if self._hashes is None:
            return
        written = sum(len(set(each)) for each in self._hashes)
        for attempt in range(_COUNTS):
            if attempt:
                time.sleep(_AGAIN_S)
            found = count()
            if found is None or found == written:
                self._hashes = None
                return
        raise CopyDiffers(
            f"{store} has {found:,} objects after a copy that wrote {written:,}; find what adds,"
            " removes or merges them, such as another program, a trigger or an eviction, and copy"
            f" again with `tidings consumers mark {consumer} copy --why TEXT`"
        )
