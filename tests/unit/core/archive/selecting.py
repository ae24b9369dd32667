"""The entries that compaction keeps, by definition: a model for the compaction in Spark."""

from __future__ import annotations

from collections.abc import Iterable

from tidings.core.model.operations import has_object, is_change, is_erasure, key_of
from tidings.core.model.pages import Page


def select_entries(pages: Iterable[Page], *, changes: bool = True) -> set[tuple[int, int]]:
    """Return the page and slot of each entry that compaction keeps. *pages* must be in order.

    Compaction keeps the last operation of each object and, if *changes*, all changes of
    changeagent, which have no object. It drops erased entries. It keeps erasure entries: an erasure
    that is not done may still need its entry, and when it is done, the entry is erased, too.
    """
    latest: dict[str, tuple[int, int]] = {}
    kept: set[tuple[int, int]] = set()
    for page in pages:
        for slot, line in page.entries():
            at = (page.number, slot)
            if has_object(line):
                latest[key_of(line)] = at
            if is_erasure(line) or (changes and is_change(line)):
                kept.add(at)
    return kept | set(latest.values())
