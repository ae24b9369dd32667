"""The wire format of replication, for batches of whole pages and for rows of the state.

The format is NDJSON. The first line has the status of the feed and the number of pages or rows.
Pages follow in the format of archive parts (`archive.segments`). Each row has two lines: the first
has the key and the position of the row, and the second has its operation, which is not parsed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidings.core.archive import segments
from tidings.core.errors import BrokenBatch, BrokenPart
from tidings.core.state.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.model.cursors import Place
    from tidings.core.model.pages import Page
    from tidings.core.replication.source import Selection
    from tidings.core.settings.profiles import Lost
    from tidings.core.state.sums import PageSums


class Upstream(Protocol):
    """A client for feeds that this deployment copies. *url* is the address of a feed.

    Each method raises:
        BrokenBatch: the answer cannot be read.
        Unavailable: the upstream did not answer, or sent a temporary error (408, 425, 429, 5xx).
        UpstreamRefused: the upstream does not allow this feed to read, or has no such feed.
    """

    def pages(
        self, url: str, after: Place, selection: Selection, *, size: int, block_s: int
    ) -> ReplicationBatch:
        """Return whole pages after *after*; wait up to *block_s* seconds if there is no page yet.

        Raises:
            LogFellOff: the upstream's log does not go back to *after*.
            OtherLog: *after* is not the end of a page of the upstream.
        """

    def rows(self, url: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        """Return the next rows of *bucket* after the key *after*, including tombstones."""

    def sums(self, url: str) -> PageSums:
        """Return the sums of the upstream's state. An upstream without sums refuses the request."""


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """The status of a feed, for the feeds that copy it.

    *floor* is the first page in the feed's log, and *head* the last page that can be read. The
    feed's state contains all pages up to *state*. *master* is the address that producers post to,
    or "" if this feed is the master. *via* are the ids of the relays from the master to this feed,
    in order. *master_read_ms* is the time when the master was last read, or the current time
    if this feed is the master. If *ended* is True, no page follows *head*, because another feed
    continues the log. *lost* are the pages that were sent to readers, but that the log no longer
    has (`settings.profiles`).
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
class ReplicationBatch:
    """Consecutive pages after the requested position, or no pages if there are no new pages.

    If the next page did not fit the requested size, *pages* is empty, and *pending* is the size in
    bytes of the reply that this page needs. *filtered* is the number of operations that the
    selection left out of the pages.
    """

    status: UpstreamStatus
    pages: tuple[Page, ...] = ()
    pending: int = 0
    filtered: int = 0

    @property
    def is_full(self) -> bool:
        """Return True if the feed has more pages after these."""
        return bool(self.pages) and self.pages[-1].number < self.status.head


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one bucket of the state, in key order.

    The next rows follow the key *after*, which is None at the end of the bucket.
    """

    status: UpstreamStatus
    rows: tuple[Row, ...] = ()
    after: str | None = None


def encode_batch(batch: ReplicationBatch) -> str:
    counts = {"pending": batch.pending, "filtered": batch.filtered}
    head = {**asdict(batch.status), **counts, "pages": len(batch.pages)}
    return _line(head) + segments.text_of(batch.pages)


def decode_batch(text: str) -> ReplicationBatch:
    """Parse the output of `encode_batch`.

    Raises:
        BrokenBatch: *text* is not a batch, or is truncated.
    """
    head, rest = _split_line(text)
    try:
        pages = tuple(segments.pages_of(rest))
        _check_complete(head["pages"], pages)
        return ReplicationBatch(
            _parse_status(head), pages, int(head["pending"]), int(head["filtered"])
        )
    except (KeyError, TypeError, ValueError, BrokenPart) as error:
        raise BrokenBatch(f"the answer is not a batch of pages: {error}") from None


def encode_rows(rows: Rows) -> str:
    head = {**asdict(rows.status), "after": rows.after, "rows": len(rows.rows)}
    keys = ([row.key, row.page, row.slot, row.at_ms, row.expires_ms] for row in rows.rows)
    lines = (f"{_line(key)}{row.line}\n" for key, row in zip(keys, rows.rows, strict=True))
    return _line(head) + "".join(lines)


def decode_rows(text: str) -> Rows:
    """Parse the output of `encode_rows`.

    Raises:
        BrokenBatch: *text* does not contain rows, or is truncated.
    """
    head, rest = _split_line(text)
    try:
        rows = tuple(_rows(rest.split("\n")))
        _check_complete(head["rows"], rows)
        return Rows(_parse_status(head), rows, head["after"])
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenBatch(f"the answer is not a batch of rows: {error}") from None


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    """Parse two lines per row. The last of *lines* is "", because a line feed ends the text."""
    if lines[-1] or len(lines) % 2 == 0:
        raise ValueError("the text ends within a row")
    heads = json.loads(f"[{','.join(lines[:-1:2])}]")  # twice as fast as parsing line by line
    for (key, page, slot, at_ms, expires_ms), line in zip(heads, lines[1::2], strict=True):
        yield Row(key=key, page=page, slot=slot, at_ms=at_ms, line=line, expires_ms=expires_ms)


def _check_complete(announced: int, items: Sequence[object]) -> None:
    """Refuse a reply that was truncated between two lines."""
    if announced != len(items):
        raise ValueError(f"{announced} items were announced, but {len(items)} received")


def _line(head: object) -> str:
    return f"{json.dumps(head, ensure_ascii=False, separators=(',', ':'))}\n"


def _split_line(text: str) -> tuple[dict[str, Any], str]:
    first, end, rest = text.partition("\n")
    try:
        head = json.loads(first)
    except ValueError:
        head = None
    if not end or not isinstance(head, dict):
        raise BrokenBatch("the answer does not begin with the status of the feed")
    return head, rest


def _parse_status(head: dict[str, Any]) -> UpstreamStatus:
    return UpstreamStatus(
        floor=int(head["floor"]),
        head=int(head["head"]),
        state=int(head["state"]),
        master=str(head["master"]),
        via=tuple(map(str, head["via"])),
        master_read_ms=int(head["master_read_ms"]),
        ended=bool(head.get("ended", False)),
        lost=tuple((int(first), int(last)) for first, last in head.get("lost", ())),
    )
