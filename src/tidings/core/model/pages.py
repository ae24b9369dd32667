"""
Pages: the unit of append. One page holds the operations of one request, in order.

The body of a page is NDJSON, one line an entry. Small bodies stay text, so that a person can
read them in the console; larger ones are deflated, because DynamoDB bills by the kilobyte.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import TooLarge
from tidings.core.model.cursors import PAGE_END, Place, prefix
from tidings.core.model.unpacking import inflate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FILLER_ID = "filler"
_DEFLATE_LEVEL = 6


@dataclass(frozen=True)
class Page:
    """
    *body* is text (NDJSON) or its deflated bytes; a filler's is empty.

    *at_ms* is the writer's clock when it was committed; *append_id* tells whose write it is.
    *expires_ms* is when DynamoDB may delete it, well after the floor has passed it.
    *slots* are those of its entries where some of them were left out; None: all are there.
    *compacted*: the archive gave up some of them, so that it does not tell all that happened.
    *trace* is the `traceparent` of the request that it was, where that is traced (`tracing`).
    *skipped* numbers right before this one belong to no page: a restored log continues above every
    number that a reader may have seen (`maintenance.restore`).
    """

    number: int
    body: str | bytes
    append_id: str
    at_ms: int
    expires_ms: int = 0
    slots: tuple[int, ...] | None = None
    compacted: bool = False
    trace: str = ""
    skipped: int = 0

    @property
    def first(self) -> int:
        """The number after that of the page before; another one than its own after a jump."""
        return self.number - self.skipped

    @property
    def text(self) -> str:
        """The body as NDJSON; unpacked anew each time, because a replay holds many pages."""
        body = self.body
        if isinstance(body, str):
            return body
        return inflate(body, limits.PAGE_TEXT_BYTES_MAX).decode()

    @property
    def size(self) -> int:
        """That of the body as it is stored: characters of text, or bytes of what is deflated."""
        return len(self.body)

    @cached_property
    def lines(self) -> list[str]:
        """The entries, in slot order."""
        return lines_of(self.text)

    def entries(self, first: int = 0) -> Iterator[tuple[int, str]]:
        """Each entry that is there from slot *first* on, with its slot."""
        return self.numbered(self.lines, first)

    def numbered(self, lines: list[str], first: int = 0) -> Iterator[tuple[int, str]]:
        """As `entries`, where *lines* were taken from its text and are not to be kept."""
        if self.slots is None:
            return enumerate(lines[first:] if first else lines, first)
        at = bisect_left(self.slots, first)
        return zip(self.slots[at:], lines[at:], strict=True)

    def at(self, slot: int) -> str | None:
        """The entry in *slot*, None where there is none."""
        entry = next(self.entries(slot), None)
        return entry[1] if entry and entry[0] == slot else None

    @property
    def last_slot(self) -> int:
        """That of its last entry; -1 where it has none."""
        if self.slots is None:
            return len(self.lines) - 1
        return self.slots[-1] if self.slots else -1

    def only(self, kept: Sequence[tuple[int, str]]) -> Page:
        """This page, unpacked, with the entries *kept* alone, in the slots they have."""
        text, slots = "\n".join(line for _, line in kept), tuple(slot for slot, _ in kept)
        return replace(self, body=text, slots=slots)

    @property
    def seconds(self) -> int:
        return self.at_ms // 1000

    @property
    def id_prefix(self) -> str:
        return prefix(self.number, self.seconds)

    @property
    def end(self) -> Place:
        """The place behind this page."""
        return Place(self.number, PAGE_END, self.seconds)


class Pages(list[Page]):
    """What one read of a log found; *more*: it was cut short, there may be pages behind."""

    def __init__(self, pages: Iterable[Page] = (), *, more: bool = False) -> None:
        super().__init__(pages)
        self.more = more


def lines_of(text: str) -> list[str]:
    """The entries of a page's text; a filler has none."""
    return text.split("\n") if text else []


def encode(lines: Sequence[str]) -> str | bytes:
    """
    The body of a page that holds *lines*.

    Raises:
        TooLarge: it would not fit into one item.
    """
    assert 0 < len(lines) <= limits.REQUEST_OPERATIONS_MAX
    text = "\n".join(lines)
    raw = text.encode()
    if len(raw) <= limits.PAGE_PLAIN_BYTES_MAX:
        return text
    packed = zlib.compress(raw, _DEFLATE_LEVEL)
    if len(packed) > limits.PAGE_BYTES_MAX:
        rule = f"a page packs into {limits.PAGE_BYTES_MAX} bytes, this one into {len(packed)}"
        raise TooLarge(f"{rule}; send fewer operations a request", field="body")
    return packed


def filler(number: int, *, at_ms: int, expires_ms: int) -> Page:
    """The empty page that closes a hole."""
    return Page(number, "", FILLER_ID, at_ms, expires_ms)


def jump(first: int, number: int, *, at_ms: int, expires_ms: int) -> Page:
    """Build the empty page *number* that stands for all numbers from *first* on."""
    return replace(filler(number, at_ms=at_ms, expires_ms=expires_ms), skipped=number - first)
