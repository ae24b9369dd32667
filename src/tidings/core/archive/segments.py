"""Archive parts, each of which is an object that holds many pages of a log.

A part is gzipped NDJSON. Each page begins with a line such as
`{"page":12,"at":1767225600000,"lines":2}`, followed by the entries of the page, which are lines of
the log. If entries are missing, `"slots":[0,4]` lists the slots of the remaining entries: those
that compaction kept or, with `"selected":true`, those that a chained feed copied. In page 12,
`"first":7` means that the numbers 7 to 11 were skipped, so that no pages have them
(`Page.skipped`).

Parts may overlap. All parts that have a page have the same entries for it, except for entries that
compaction removed and for content that an erasure removed.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from tidings.core import limits
from tidings.core.errors import BrokenPart
from tidings.core.model.pages import GZIP, Page, inflate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_LEVEL = 6
# Thirteen digits hold every page number that fits an event id.
_NAME = re.compile(r"(?:generation-(\d{6})/)?(\d{13})-(\d{13})\.ndjson\.gz", re.ASCII)
PAGE_MAX = 10**13 - 1  # the largest number of a page in the name of a part


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The range of pages that a part of a *generation* holds, from *first* to *last*.

    Spans are sorted by *last*.
    """

    last: int
    first: int
    generation: int = 0

    def __post_init__(self) -> None:
        assert 0 < self.first <= self.last

    @property
    def name(self) -> str:
        """Return the part's key below the folder of the feed.

        Its last component starts with the number of the part's last page, so that one listing finds
        the part that has a page. Keys are listed in order from a given key on, and the first part
        that ends at the page or after it has the page.
        """
        return f"{folder_of(self.generation)}{self.last:013d}-{self.first:013d}.ndjson.gz"

    def holds(self, page: int) -> bool:
        return self.first <= page <= self.last


def folder_of(generation: int) -> str:
    """Return the folder of *generation* below that of the feed; it ends with a slash or is ""."""
    return f"generation-{generation:06d}/" if generation else ""


def span_of(name: str) -> Span | None:
    """Parse *name*, a key below the folder of a feed; return None if it does not name a part."""
    match = _NAME.fullmatch(name)
    return Span(int(match[2]), int(match[3]), int(match[1] or 0)) if match else None


def encode(pages: Sequence[Page], generation: int = 0) -> tuple[Span, bytes]:
    """Return the span and the encoded part of *pages*, which must be consecutive, in *generation*.

    The same pages always give the same bytes.
    """
    span = Span(pages[-1].number, pages[0].first, generation)
    assert are_complete(pages, span)
    return span, gzip.compress(text_of(pages).encode(), _LEVEL, mtime=0)


def are_complete(pages: Sequence[Page], span: Span) -> bool:
    """Return True if *pages* are all pages of *span*, in order."""
    ends = [span.first - 1, *(page.number for page in pages)]
    firsts = [*(page.first for page in pages), span.last + 1]
    return firsts == [end + 1 for end in ends]


def decode(body: bytes) -> list[Page]:
    """Return the pages of a part, in order.

    Raises:
        BrokenPart: *body* is not gzip, is truncated, or has an invalid line.
    """
    try:
        text = inflate(body, limits.ARCHIVE_UNPACKED_BYTES_MAX, GZIP).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise BrokenPart(f"a part of the archive is not a complete gzip file: {error}") from None
    return list(pages_of(text))


def text_of(pages: Iterable[Page]) -> str:
    return "".join(map(_page_text, pages))


def pages_of(text: str) -> Iterator[Page]:
    """Yield the pages in *text*, which `text_of` returned.

    Raises:
        BrokenPart: *text* is truncated or has an invalid line.
    """
    lines = text.split("\n")
    at = 0
    while at < len(lines) - 1:
        head = _head(lines[at])
        next_at = at + 1 + head["lines"]
        if next_at >= len(lines):
            break
        slots = head.get("slots")
        yield Page(
            head["page"],
            "\n".join(lines[at + 1 : next_at]),
            "",
            head["at"],
            slots=None if slots is None else tuple(slots),
            compacted=slots is not None and not head.get("selected"),
            skipped=head["page"] - head.get("first", head["page"]),
        )
        at = next_at
    if at < len(lines) - 1 or lines[at]:
        raise BrokenPart("a part of the archive ends within a page")


def _page_text(page: Page) -> str:
    text = page.text
    lines = text.count("\n") + 1 if text else 0
    head: dict[str, Any] = {"page": page.number, "at": page.at_ms, "lines": lines}
    if page.skipped:
        head["first"] = page.first
    if page.slots is not None:
        head["slots"] = page.slots
        if not page.compacted:
            head["selected"] = True
    line = json.dumps(head, separators=(",", ":"))
    return f"{line}\n{text}\n" if text else f"{line}\n"


def _head(line: str) -> dict[str, Any]:
    try:
        head: dict[str, Any] = json.loads(line)
        assert head["page"] > 0 and head["lines"] >= 0 and head["at"] >= 0
        assert 0 < head.get("first", head["page"]) <= head["page"]
        assert "slots" not in head or _are_slots(head["slots"], head["lines"])
    except (ValueError, KeyError, TypeError, AssertionError):
        raise BrokenPart("a part of the archive has an invalid page header", value=line) from None
    return head


def _are_slots(slots: list[int], count: int) -> bool:
    """Return True if *slots* are *count* ascending slots, so that the entries' ids ascend too."""
    ascend = all(low < high for low, high in pairwise([-1, *slots, limits.REQUEST_OPERATIONS_MAX]))
    return len(slots) == count and ascend


def keep_entries(pages: Sequence[Page], wanted: set[tuple[int, int]]) -> list[Page]:
    """Return *pages* with only the entries of *wanted*, a set of (page, slot)."""
    return [_left_of(page, wanted) for page in pages]


def _left_of(page: Page, wanted: set[tuple[int, int]]) -> Page:
    left = [each for each in page.entries() if (page.number, each[0]) in wanted]
    if len(left) == len(page.lines):
        return page
    return replace(page.only(left), compacted=True)


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation that continues the generation *parent* after page *kept*.

    The pages after *kept* up to page *last* of the earlier generations are lost.
    """

    parent: int
    kept: int
    last: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class ArchiveStore(Protocol):
    """The parts of each feed, stored as objects. A write replaces the entire object."""

    def put(self, feed: str, span: Span, body: bytes) -> None:
        """Store *body* as the part *span*; it is durable when this method returns."""

    def get(self, feed: str, span: Span) -> bytes | None:
        """Return the part *span*, or None if it does not exist."""

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        """Return at most *limit* parts that end after page *after*, in order.

        Leave out the parts with lost pages, see `generations`. The listing is strongly consistent:
        it has each part that `put` stored before the call.
        """

    def parts(self, feed: str, generation: int, after: int, limit: int) -> Sequence[Span]:
        """Return parts as `list` does, of one *generation* and with lost pages."""

    def remove(self, feed: str, span: Span) -> None:
        """Remove the part; do nothing if it does not exist."""

    def generations(self, feed: str) -> Mapping[int, Generation]:
        """Return all generations but the first, which has the number 0 and no record."""

    def begin(self, feed: str, number: int, generation: Generation) -> bool:
        """Store *generation* under *number*; return False if the number is already used."""
