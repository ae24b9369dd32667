"""
Parts: the events of a catch-up, not parsed until a transport requests them.

Unfiltered operations become SSE text by slicing their lines. No JSON is parsed and no event is
built, which would be most of the cost of a replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tidings.core.model.events import Event, of_line, to_sse
from tidings.core.model.operations import data_of, event_of
from tidings.core.model.pages import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.core.model.pages import Page


class Part(Protocol):
    """A sequence of events. Either form may be requested, once."""

    def events(self) -> Iterable[Event]: ...

    def sse(self) -> str:
        """Return the events as SSE blocks."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Events selected one by one: those of a filter, `reset`, `live`."""

    picked: Sequence[Event]

    def events(self) -> Iterable[Event]:
        return self.picked

    def sse(self) -> str:
        return "".join(map(to_sse, self.picked))


@dataclass(frozen=True, slots=True)
class PageSlice:
    """All operations of *page* from slot *first* on."""

    page: Page
    first: int = 0

    def events(self) -> Iterable[Event]:
        prefix = self.page.id_prefix
        for slot, line in self.page.entries(self.first):
            yield of_line(prefix, slot, line, self.page.trace)

    def sse(self) -> str:
        prefix = self.page.id_prefix
        lines = lines_of(self.page.text)
        return "".join(
            [
                f"id: {prefix}{slot:06x}\nevent: {event_of(line)}\ndata: {data_of(line)}\n\n"
                for slot, line in self.page.numbered(lines, self.first)
            ]
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Living objects of one bucket, by their *lines*; they share the *cursor* as their id."""

    cursor: str
    lines: Sequence[str]

    def events(self) -> Iterable[Event]:
        return (Event(self.cursor, "insert", data_of(line)) for line in self.lines)

    def sse(self) -> str:
        head = f"id: {self.cursor}\nevent: insert\ndata: "
        return "".join([f"{head}{data_of(line)}\n\n" for line in self.lines])


@dataclass(frozen=True, slots=True)
class Written:
    """The events of *part*, each formatted by *write*: with its trace, or in another format."""

    part: Part
    write: Callable[[Event], str]

    def events(self) -> Iterable[Event]:
        return self.part.events()

    def sse(self) -> str:
        return "".join(map(self.write, self.part.events()))


@dataclass(frozen=True)
class Lasting:
    """A part that many streams request: its text is built once."""

    part: Part

    def events(self) -> Iterable[Event]:
        return self.part.events()

    def sse(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return self.part.sse()
