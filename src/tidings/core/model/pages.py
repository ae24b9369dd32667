"""Pages, the unit of append. A page holds the operations of one request, in order.

The body of a page is NDJSON, with one line per operation. These lines are the entries of the page.
The index of an entry in the page is its slot, which stays the same if other entries are removed.
A small body is stored as text, which is readable in the AWS console. A larger body is deflated,
because DynamoDB bills per kilobyte.
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


ZLIB, GZIP = 15, 31  # window bits for data with a zlib header, and for data with a gzip header


def inflate(packed: bytes, bytes_max: int, window_bits: int = ZLIB) -> bytes:
    """Return *packed* inflated.

    Raises:
        zlib.error: the data is damaged, truncated, followed by other bytes, or larger than
            *bytes_max* when inflated.
    """
    unpacking = zlib.decompressobj(window_bits)
    plain = unpacking.decompress(packed, bytes_max + 1)
    if len(plain) > bytes_max:
        raise zlib.error(f"the data inflates to more than {bytes_max} bytes")
    if not unpacking.eof:
        raise zlib.error("the data is truncated")
    if unpacking.unused_data:
        raise zlib.error("other bytes follow the end of the data")
    return plain


FILLER_ID = "filler"
_DEFLATE_LEVEL = 6


@dataclass(frozen=True)
class Page:
    """One page of a log.

    *body* is NDJSON text, or its deflated bytes. The body of a filler is empty.
    *at_ms* is the commit time by the writer's clock; *append_id* identifies the write.
    *expires_ms* is the time from which DynamoDB may delete the page, long after it was trimmed.
    *slots* has the slots of the entries if some entries were removed; otherwise it is None.
    *compacted* is True if the archive removed entries, so that the page is not a full history.
    *trace* is the `traceparent` of the request, if the request is traced (see `tracing`).
    *skipped* counts the page numbers directly before `number` that have no page. A restored log
    skips every number that a reader may have seen (`maintenance.restore`).
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
        """Return the first skipped number, or `number` if no number was skipped."""
        return self.number - self.skipped

    @property
    def text(self) -> str:
        """Return the body as NDJSON. The text is not cached, because a replay holds many pages."""
        body = self.body
        if isinstance(body, str):
            return body
        return inflate(body, limits.PAGE_TEXT_BYTES_MAX).decode()

    @property
    def size(self) -> int:
        """Return the stored size of the body: characters of text, or deflated bytes."""
        return len(self.body)

    @cached_property
    def lines(self) -> list[str]:
        """Return the entries, in slot order."""
        return lines_of(self.text)

    def with_lines(self, lines: Sequence[str]) -> Page:
        """Return this page, which now has *lines* in memory, so that `lines` need not unpack it."""
        vars(self)["lines"] = list(lines)
        return self

    def entries(self, first: int = 0) -> Iterator[tuple[int, str]]:
        """Yield the slot and the text of each entry from slot *first* on."""
        if self.slots is None and not first:
            return enumerate(self.lines)
        return self.number_lines(self.lines, first)

    def number_lines(self, lines: list[str], first: int = 0) -> Iterator[tuple[int, str]]:
        """Yield the same as `entries`, from *lines* that the caller split from `text`."""
        if self.slots is None:
            return enumerate(lines[first:] if first else lines, first)
        at = bisect_left(self.slots, first)
        return zip(self.slots[at:], lines[at:], strict=True)

    def at(self, slot: int) -> str | None:
        """Return the entry in *slot*, or None if the slot is empty."""
        entry = next(self.entries(slot), None)
        return entry[1] if entry and entry[0] == slot else None

    @property
    def last_slot(self) -> int:
        """Return the slot of the last entry, or -1 if the page has no entries."""
        if self.slots is None:
            return len(self.lines) - 1
        return self.slots[-1] if self.slots else -1

    def only(self, kept: Sequence[tuple[int, str]]) -> Page:
        """Return a copy of this page, inflated, with only the entries *kept*, in their slots."""
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
        """Return the place after the last entry of this page."""
        return Place(self.number, PAGE_END, self.seconds)


class Pages(list[Page]):
    """The pages found by one read of a log.

    *more* is True if the read stopped early, so that more pages may follow.
    """

    def __init__(self, pages: Iterable[Page] = (), *, more: bool = False) -> None:
        super().__init__(pages)
        self.more = more


def lines_of(text: str) -> list[str]:
    """Return the entries of a page's *text*; a filler has no entries."""
    return text.split("\n") if text else []


def encode(lines: Sequence[str], bytes_max: int = limits.PAGE_BYTES_MAX) -> str | bytes:
    """Return the body of a page that holds *lines*.

    Raises:
        TooLarge: the compressed body exceeds *bytes_max*.
    """
    assert 0 < len(lines) <= limits.REQUEST_OPERATIONS_MAX
    text = "\n".join(lines)
    raw = text.encode()
    if len(raw) <= limits.PAGE_PLAIN_BYTES_MAX:
        return text
    packed = zlib.compress(raw, _DEFLATE_LEVEL)
    if len(packed) > bytes_max:
        rule = f"a page has up to {bytes_max} compressed bytes, this one {len(packed)}"
        raise TooLarge(f"{rule}; send fewer operations in one request", field="body")
    return packed


def filler(number: int, *, at_ms: int, expires_ms: int) -> Page:
    """Return an empty page that closes a hole."""
    return Page(number, "", FILLER_ID, at_ms, expires_ms)


def jump(first: int, number: int, *, at_ms: int, expires_ms: int) -> Page:
    """Return the empty page *number* that replaces all numbers from *first* to *number*."""
    return replace(filler(number, at_ms=at_ms, expires_ms=expires_ms), skipped=number - first)
