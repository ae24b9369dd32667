"""Use a function of the pipeline's author as a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidings.pipelines.message import Message


class Call:
    """A sink that calls *function* with each batch; the batch is written when it returns."""

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
