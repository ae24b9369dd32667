"""
The archive: the pages of a log for as long as somebody pays for them, many in one part.

A part is gzipped NDJSON. Of each page a line that says which it is, then its entries as they
are in the log: `{"page":12,"at":1767225600000,"lines":2}`. In a part that was compacted
`"slots":[0,4]` says which of its entries are left.

Pages never change, so parts may overlap: what two of them hold of a page is the same, or what
compaction left of it.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import BrokenPart
from .pages import Page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LEVEL = 6
# Thirteen digits hold any page an event id can name.
_NAME = re.compile(r"(\d{13})-(\d{13})\.ndjson\.gz", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Which pages a part holds, each of them from *first* to *last*; ordered by *last*."""

    last: int
    first: int

    def __post_init__(self) -> None:
        assert 0 < self.first <= self.last

    @property
    def name(self) -> str:
        """
        The end of its object's key, by the last page first.

        So the part that holds a page is found by one listing: keys are listed in their order
        from a given one on, and the first that ends at the page or behind it holds it.
        """
        return f"{self.last:013d}-{self.first:013d}.ndjson.gz"

    def holds(self, page: int) -> bool:
        return self.first <= page <= self.last


def span_of(name: str) -> Span | None:
    """What the end of a key says; None for what is no part."""
    found = _NAME.fullmatch(name)
    return Span(last=int(found[1]), first=int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class Kept:
    """
    What the archive has of a page; *slots* are those of the entries of *page* that are left.

    None: all of them are there, and the page is as it was in the log.
    """

    page: Page
    slots: tuple[int, ...] | None = None

    def entries(self) -> Iterator[tuple[int, str]]:
        """Each entry that is left, with its slot."""
        lines = self.page.lines
        return zip(range(len(lines)) if self.slots is None else self.slots, lines, strict=True)


def encode(pages: Sequence[Kept]) -> tuple[Span, bytes]:
    """
    The part that holds *pages*, which follow each other without a hole.

    The same pages make the same bytes.
    """
    text = "".join(map(_told, pages))
    span = Span(last=pages[-1].page.number, first=pages[0].page.number)
    assert len(pages) == span.last - span.first + 1
    return span, gzip.compress(text.encode(), _LEVEL, mtime=0)


def decode(body: bytes) -> list[Kept]:
    """
    The pages of a part, in order.

    Raises:
        BrokenPart: not gzip, its end is missing, or a line is not what it must be.
    """
    try:
        lines = gzip.decompress(body).decode().split("\n")
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise BrokenPart(f"a part of the archive is no whole gzip file: {error}") from None
    found: list[Kept] = []
    at = 0
    while at < len(lines) - 1:
        head = _head(lines[at])
        behind = at + 1 + head["lines"]
        if behind >= len(lines):
            raise BrokenPart("a part of the archive ends within a page")
        text = "\n".join(lines[at + 1 : behind])
        slots = head.get("slots")
        page = Page(head["page"], text, "", head["at"])
        found.append(Kept(page, None if slots is None else tuple(slots)))
        at = behind
    return found


def _told(kept: Kept) -> str:
    page = kept.page
    text = page.text
    head: dict[str, Any] = {"page": page.number, "at": page.at_ms, "lines": len(page.lines)}
    if kept.slots is not None:
        head["slots"] = kept.slots
    line = json.dumps(head, separators=(",", ":"))
    return f"{line}\n{text}\n" if text else f"{line}\n"


def _head(line: str) -> dict[str, Any]:
    try:
        head: dict[str, Any] = json.loads(line)
        assert head["page"] > 0 and head["lines"] >= 0 and head["at"] >= 0
        assert len(head.get("slots", ())) == (head["lines"] if "slots" in head else 0)
    except (ValueError, KeyError, TypeError, AssertionError):
        raise BrokenPart("a part of the archive says nothing of a page", value=line) from None
    return head


def compacted(pages: Sequence[Kept], wanted: set[tuple[int, int]]) -> list[Kept]:
    """*pages* with those of their entries alone whose (page, slot) is *wanted*."""
    return [_left_of(kept, wanted) for kept in pages]


def _left_of(kept: Kept, wanted: set[tuple[int, int]]) -> Kept:
    page = kept.page
    left = [each for each in kept.entries() if (page.number, each[0]) in wanted]
    if kept.slots is None and len(left) == len(page.lines):
        return kept
    text = "\n".join(line for _, line in left)
    return Kept(Page(page.number, text, "", page.at_ms), tuple(slot for slot, _ in left))
