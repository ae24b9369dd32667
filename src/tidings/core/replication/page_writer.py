"""Pages as a relay writes them: in order, packed, and no more at once than one write may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import BrokenPortion
from tidings.core.model.pages import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.model.pages import Page

_PAGE_OVERHEAD_BYTES = 2_000  # of an item beside its body, with the slots of a thousand entries


def fresh(pages: Sequence[Page], checkpoint: int) -> list[Page]:
    """
    Those behind *checkpoint*; the others are here already.

    Raises:
        BrokenPortion: they do not follow each other and the checkpoint.
    """
    new_pages = [page for page in pages if page.number > checkpoint]
    for page in new_pages:
        if not page.first <= checkpoint + 1 <= page.number:
            raise BrokenPortion(f"page {page.first} came, and page {checkpoint + 1} is next")
        checkpoint = page.number
    return new_pages


def packed(page: Page, append_id: str, *, now_ms: int, page_ms: int) -> Page:
    """
    *page* as the log keeps it, for as long as it needs it.

    A page may be older than the log is kept. It expires a day after it came at the earliest, as a
    page that retention has extended does, so that the floor has passed it before.

    Raises:
        TooLarge, BrokenPortion: no page may hold so much.
    """
    lines = page.lines
    if len(lines) > limits.REQUEST_OPERATIONS_MAX:
        raise BrokenPortion(f"page {page.number} holds {len(lines)} entries")
    return replace(
        page,
        body=encode(lines) if lines else "",
        append_id=append_id,
        expires_ms=max(page.at_ms + page_ms, now_ms + limits.TTL_SLACK_MS),
    )


def grouped(pages: Iterable[Page]) -> Iterator[list[Page]]:
    """*pages*, as many together as one write may hold."""
    group: list[Page] = []
    size = 0
    for page in pages:
        weight = _weight(page)
        full = len(group) == limits.PORTION_PAGES_MAX or size + weight > limits.RELAY_WRITE_BYTES
        if group and full:
            yield group
            group, size = [], 0
        group.append(page)
        size += weight
    if group:
        yield group


def _weight(page: Page) -> int:
    """In bytes; a text in ASCII and beyond has at most as many as it would have as UTF-8."""
    body = page.body
    return (len(body) if isinstance(body, bytes) else len(body.encode())) + _PAGE_OVERHEAD_BYTES
