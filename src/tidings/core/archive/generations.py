"""The generations of an archive, which separate the pages of a feed before and after a restore.

A restore begins a generation, in which the follower of the restored log writes its parts. A
process that still archives the log before the restore does not know the generation. Its parts are
in an earlier one, and readers ignore those with pages that the restore has not kept. Generation 0
has no record. It is the whole archive of a feed that was never restored.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.segments import PAGE_MAX, Generation, Span, decode, encode, folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidings.core.archive.segments import ArchiveStore

_NAME = re.compile(r"generation-(\d{6})(?:/|\.json)", re.ASCII)


# A generation without a record: it was begun in another archive, from which this one was moved.
MOVED = Generation(0, 0, 0)


def record_name(number: int) -> str:
    """Return the name of the record of generation *number*, in the folder of the feed."""
    return f"{folder_of(number)[:-1]}.json"


def parse_generations(names: Iterable[str], read: Callable[[str], bytes]) -> dict[int, Generation]:
    """Return the generations among *names*, records and folders (with a final slash)."""
    found: dict[int, Generation] = {}
    for name in sorted(names):  # a record is before its folder
        match = _NAME.fullmatch(name)
        if match and not name.endswith("/"):
            found[int(match[1])] = Generation(**json.loads(read(name)))
        elif match:
            found.setdefault(int(match[1]), MOVED)
    return found


def ends(generations: Mapping[int, Generation]) -> dict[int, int]:
    """Return the last page of each generation that readers may read; 0 if they may read no page.

    The newest generation has no end. Each earlier one ends where the next one continues it.
    """
    found = dict.fromkeys((0, *generations), 0)
    number, end = max(found), PAGE_MAX
    while end and found.get(number) == 0:
        found[number] = end
        generation = generations.get(number, MOVED)
        number, end = generation.parent, min(end, generation.kept)
    return found


def list_parts(store: ArchiveStore, feed: str, after: int, limit: int) -> Sequence[Span]:
    """Implement `ArchiveStore.list`."""
    found = [
        span
        for number, end in ends(store.generations(feed)).items()
        if after < end
        for span in store.parts(feed, number, after, limit)
        if span.last <= end
    ]
    return sorted(found)[:limit]


def lost_parts(store: ArchiveStore, feed: str) -> list[Span]:
    """Return the first parts with lost pages, which a process has archived since the restore."""
    return [
        span
        for number, end in ends(store.generations(feed)).items()
        for span in store.parts(feed, number, end, limits.ARCHIVE_LISTED)
    ]


def begin(store: ArchiveStore, feed: str, generation: Generation) -> int:
    """Begin *generation* as the newest of *feed*; return its number."""
    number = max((generation.parent, *store.generations(feed)))
    while not store.begin(feed, number := number + 1, generation):
        """Another restore has begun this generation."""
    return number


def cut(store: ArchiveStore, feed: str, kept: int, generation: int = 0) -> int:
    """Cut *generation* after page *kept*; return how many parts were cut or removed.

    Raises:
        BrokenPart: a part that must be cut cannot be read. The part is not removed.
    """
    count = 0
    while spans := store.parts(feed, generation, kept, limits.ARCHIVE_LISTED):
        for span in spans:
            body = store.get(feed, span) if span.first <= kept else None
            if body is not None:
                pages = [page for page in decode(body) if page.number <= kept]
                store.put(feed, *encode(pages, generation))
            store.remove(feed, span)
            count += 1
    return count


def remove_lost(store: ArchiveStore, feed: str) -> int:
    """Cut generations where readers stop reading them; return the number of parts cut or removed.

    Raises:
        BrokenPart: see `cut`.
    """
    found = ends(store.generations(feed))
    return sum(cut(store, feed, end, number) for number, end in found.items())
