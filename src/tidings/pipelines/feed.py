"""Write to another feed, or call a function with each batch."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from tidings.client.errors import Lost, Refused
from tidings.client.feed_api import NamedConsumers, Objects
from tidings.client.poster import Poster
from tidings.core.model import cursors
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import PatientStore, blame_message, write_parts
from tidings.pipelines.ingest_source import BATCH, owned, owner_tag
from tidings.pipelines.messages import Busy, Message, Verdict
from tidings.pipelines.pipeline import Source

CHECK_S = 0.5  # the time between two checks of the state
_OF_A_MESSAGE = (400, 413, 422)  # the statuses of operations that a feed does not accept
PROJECTED_S = 60.0  # the longest wait until the state includes all pages, normally 1 s


def objects_of(
    source: Source, kind: str = "", wait: Callable[[float], object] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Yield the objects in the feed *source*, of the type *kind* or of all types.

    Wait first until the state includes all pages of the log.

    Raises:
        Lost: the feed is not available, or its state does not reach the end of the log.
    """
    with source.opened(NamedConsumers) as api:
        for _ in range(int(PROJECTED_S / CHECK_S)):
            followers = {each["name"]: each for each in api.ask("GET", "status")["followers"]}
            if followers["state"]["lag_pages"] == 0:
                break
            wait(CHECK_S)
        else:
            raise Lost("the state of the feed does not reach the end of the log")
    with source.opened(Objects) as objects:
        yield from objects.all(kind)


class Feed(PatientStore):
    """A sink that posts operations to *feed* at *url*. Posting a batch again has no effect.

    The objects have a tag with the name of the consumer. A reset deletes the objects with this tag,
    and the copy inserts those that still exist.
    """

    def __init__(self, url: str, feed: str = "main", *, password: str = "") -> None:
        self._url, self._feed = url, feed
        self._source = Source(url, feed, password=password)
        self._poster: Poster | None = None
        self._tag = self._copy = ""

    def open(self, consumer: str) -> None:
        self._tag = owner_tag(consumer)
        # The caller repeats a request that fails, with the same key.
        self._poster = self._source.opened(partial(Poster, attempts_max=1))

    def write(self, messages: list[Message], fence: int) -> None:
        try:
            with blame_message(messages):
                write_parts(messages, self._post, self._empty)
        except Lost as lost:
            raise Busy(str(lost)) from lost

    def _post(self, messages: Sequence[Message], first: int) -> None:
        assert self._poster is not None
        if not messages:
            return
        text = "".join(each.id + each.key for each in messages)
        if not isinstance(cursors.parse(messages[0].id), cursors.Place):
            text += self._copy  # a later copy has the same ids, but follows deletions
        operations = [{**each.data, "event": each.op, "type": each.namespace} for each in messages]
        try:
            self._poster.post(
                [owned(each, self._tag) for each in operations],
                key=hashlib.sha256(text.encode()).hexdigest(),
            )
        except Refused as refused:
            if refused.status not in _OF_A_MESSAGE:
                raise
            raise Busy(str(refused), Verdict.MESSAGE) from refused

    def _empty(self) -> None:
        """Delete the objects that this store has written, and that no other producer replaced."""
        assert self._poster is not None
        self._copy = secrets.token_hex()
        found = objects_of(self._source, wait=self.wait)
        found = (each for each in found if self._tag in each.get("tags", ()))
        while batch := list(islice(found, BATCH)):
            self._poster.post(
                [{"event": "delete", "type": each["type"], "id": each["id"]} for each in batch]
            )

    def close(self) -> None:
        if self._poster is not None:
            self._poster.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [datasets.of_feed(self._url, self._feed)]

    def __str__(self) -> str:
        return f"feed {self._feed} at {self._url}"


class Call:
    """A sink that calls *function* with each batch. The batch is written when the call returns."""

    def __init__(self, function: Callable[[Sequence[Message]], None]) -> None:
        self._function = function

    def open(self, consumer: str) -> None:
        return

    def write(self, messages: list[Message], fence: int) -> None:
        self._function(messages)

    def close(self) -> None:
        return

    def __str__(self) -> str:
        return f"function {getattr(self._function, '__name__', '?')}"
