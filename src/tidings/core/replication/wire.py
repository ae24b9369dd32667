"""
Portions: whole pages of a feed, and rows of its state, on their way to a feed that copies it.

NDJSON. The first line says where the feed stands and how much follows; then come pages as parts
of the archive have them (`archive.segments`), or rows, each behind a line that says which it is.
Entries are passed as text.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidings.core.archive import segments
from tidings.core.errors import BrokenPart, BrokenPortion
from tidings.core.state.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import Lost


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Where a feed stands, as those who copy it are told.

    *floor* is the first page in its log, *head* the last one that can be read; pages up to
    *state* are in its state. *master* is the address that its producers post to, "" for itself;
    *via* are the ids of the chained feeds that it came through, the latest last.
    *master_read_ms* is when its master was last read, now where it is the master. *ended*: no
    page follows *head*, because another feed goes on with the log. *lost* are the pages that the
    log does not have although readers saw them (`settings.profiles`).
    """

    floor: int
    head: int
    state: int
    master: str = ""
    via: tuple[str, ...] = ()
    master_read_ms: int = 0
    ended: bool = False
    lost: tuple[Lost, ...] = ()


@dataclass(frozen=True, slots=True)
class Portion:
    """
    Pages without a hole behind the one that was asked from; none where there is no news.

    *pending* is the size in bytes of the reply that the next page needs, where none was told
    because it did not fit, else 0. *filtered* entries of the pages were left out.
    """

    standing: Standing
    pages: tuple[Page, ...] = ()
    pending: int = 0
    filtered: int = 0

    @property
    def is_full(self) -> bool:
        """More follows the pages that it holds: who reads it asks on."""
        return bool(self.pages) and self.pages[-1].number < self.standing.head


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one bucket of the state, in key order; *after* is None at its end."""

    standing: Standing
    rows: tuple[Row, ...] = ()
    after: str | None = None


def tell(portion: Portion) -> str:
    counts = {"pending": portion.pending, "filtered": portion.filtered}
    head = {**asdict(portion.standing), **counts, "pages": len(portion.pages)}
    return _line(head) + segments.text_of(portion.pages)


def portion_from(text: str) -> Portion:
    """
    What `tell` made.

    Raises:
        BrokenPortion: it is none, or ends early.
    """
    head, rest = _parted(text)
    try:
        pages = tuple(segments.pages_of(rest))
        _check_whole(head["pages"], pages)
        return Portion(_standing(head), pages, int(head["pending"]), int(head["filtered"]))
    except (KeyError, TypeError, ValueError, BrokenPart) as error:
        raise BrokenPortion(f"no portion of pages: {error}") from None


def tell_rows(rows: Rows) -> str:
    head = {**asdict(rows.standing), "after": rows.after, "rows": len(rows.rows)}
    return _line(head) + "".join(map(_row_told, rows.rows))


def rows_from(text: str) -> Rows:
    """
    What `tell_rows` made.

    Raises:
        BrokenPortion: it is none, or ends early.
    """
    head, rest = _parted(text)
    try:
        rows = tuple(_rows(rest.split("\n")))
        _check_whole(head["rows"], rows)
        return Rows(_standing(head), rows, head["after"])
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenPortion(f"no portion of rows: {error}") from None


def _row_told(row: Row) -> str:
    head = [row.key, row.page, row.slot, row.at_ms, row.expires_ms]
    return f"{_line(head)}{row.line}\n"


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    """Two lines a row, and nothing behind the last line feed."""
    if lines[-1] or len(lines) % 2 == 0:
        raise ValueError("it ends within a row")
    heads = json.loads(f"[{','.join(lines[:-1:2])}]")  # at once: half the time of each by itself
    for (key, page, slot, at_ms, expires_ms), line in zip(heads, lines[1::2], strict=True):
        yield Row(key, page, slot, at_ms, line, expires_ms)


def _check_whole(announced: int, items: Sequence[object]) -> None:
    """A reply that was cut between two lines looks like one that is whole."""
    if announced != len(items):
        raise ValueError(f"it holds {len(items)}, and should hold {announced}")


def _line(head: object) -> str:
    return f"{json.dumps(head, ensure_ascii=False, separators=(',', ':'))}\n"


def _parted(text: str) -> tuple[dict[str, Any], str]:
    first, end, rest = text.partition("\n")
    try:
        head = json.loads(first)
    except ValueError:
        head = None
    if not end or not isinstance(head, dict):
        raise BrokenPortion("it does not begin with where the feed stands")
    return head, rest


def _standing(head: dict[str, Any]) -> Standing:
    return Standing(
        floor=int(head["floor"]),
        head=int(head["head"]),
        state=int(head["state"]),
        master=str(head["master"]),
        via=tuple(map(str, head["via"])),
        master_read_ms=int(head["master_read_ms"]),
        ended=bool(head.get("ended", False)),  # older releases do not say it
        lost=tuple((int(first), int(last)) for first, last in head.get("lost", ())),
    )
