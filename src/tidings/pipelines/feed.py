"""Write to another feed, or call a function with each batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tidings.client.poster import Poster
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.messages import Message


class Feed:
    """A sink that posts operations to *feed* at *url*. Posting a batch again has no effect."""

    def __init__(self, url: str, feed: str = "main", *, password: str = "") -> None:
        self._url, self._feed, self._password = url, feed, password
        self._poster: Poster | None = None

    def open(self, consumer: str) -> None:
        self._poster = Poster(self._url, self._feed, password=self._password)

    def write(self, messages: list[Message], fence: int) -> None:
        """Post the operations. Skip a reset, because all objects follow it and are posted again."""
        assert self._poster is not None
        operations = [message for message in messages if not message.is_command]
        if operations:
            key = hashlib.sha256("".join(each.id + each.key for each in operations).encode())
            self._poster.post(
                [{**each.data, "event": each.op, "type": each.namespace} for each in operations],
                key=key.hexdigest(),
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
