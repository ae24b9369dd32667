"""Where a catch-up stands, from one step to the next; which rows of a bucket a copy tells."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.model.cursors import PAGE_END, PARTS_MAX, Place, Replication

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.catchup.batches import Part
    from tidings.core.model.events import Event
    from tidings.core.state.rows import Row


@dataclass(frozen=True, slots=True)
class Progress:
    """
    Where a catch-up stands: in the log behind (*page*, *slot*), or copying the state.

    While copying, *bucket* and *after_key* say how far, *since_ms* and *tombstones* what is
    wanted, and the log goes on behind *page*. *passed* living objects of the bucket lie before, of
    which *skips* have still to be found where a copy goes on.
    *resets*: `reset` is still to be sent. *announces*: `live` is to be sent at the frontier.
    *archived*: what comes next may be in the archive alone.
    """

    page: int
    slot: int = PAGE_END
    seconds: int = 0
    copying: bool = False
    since_ms: int = 0
    bucket: int = 0
    after_key: str | None = None
    tombstones: bool = False
    resets: bool = False
    announces: bool = False
    archived: bool = False
    passed: int = 0
    skips: int = 0

    @property
    def in_step(self) -> bool:
        """Behind a whole page of the log, with nothing else left to send."""
        return not (self.copying or self.resets or self.announces) and self.slot >= PAGE_END

    @property
    def cursor(self) -> str:
        """What a client resumes from that has everything so far."""
        if self.copying:
            since_s, part = self.since_ms // 1000, self.passed // limits.COPY_PART_ROWS
            part = min(part, PARTS_MAX)
            return Replication(since_s, self.page, self.bucket, self.tombstones, part).encode()
        return Place(self.page, self.slot, self.seconds).encode()

    def encode(self) -> str:
        """
        Fields that have their default are left out: while a stage is updated, a release that does
        not know such a field decodes the rest.
        """
        stored = {name: v for name, v in asdict(self).items() if v != _DEFAULTS.get(name)}
        return json.dumps(stored, separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> Progress:
        """Fields of a newer release are left out."""
        stored = json.loads(text)
        return Progress(**{name: stored[name] for name in stored.keys() & _FIELDS})


_FIELDS = frozenset(each.name for each in fields(Progress))
_DEFAULTS = {each.name: each.default for each in fields(Progress) if each.default is not MISSING}


@dataclass(frozen=True, slots=True)
class Step:
    """
    *at_frontier*: there is nothing more to send for now. *size* is that of what was read for it,
    as `limits.KEY_READ_SIZE` counts.
    """

    parts: list[Part]
    progress: Progress
    at_frontier: bool = False
    size: int = 0

    @property
    def events(self) -> list[Event]:
        return [event for part in self.parts for event in part.events()]


def in_log(place: Place) -> Progress:
    return Progress(place.page, place.slot, place.seconds)


def in_copy(row: Row, *, since_ms: int, tombstones: bool, now_ms: int) -> bool:
    """Whether a copy of what changed since tells *row*."""
    if row.at_ms < since_ms or 0 < row.expires_ms <= now_ms:
        return False
    return tombstones or not row.deleted


def in_parts(progress: Progress, living: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The *living* objects behind *progress*, those that share a cursor together."""
    at = 0
    while at < len(living) or not at:
        begun = replace(progress, passed=progress.passed + at)
        room = limits.COPY_PART_ROWS - begun.passed % limits.COPY_PART_ROWS
        yield begun.cursor, living[at : at + room]
        at += room


def behind(progress: Progress, after: str | None, living: int) -> Progress:
    """Behind a read of *living* objects that ended at the key *after*, or at the bucket's end."""
    if after is None:
        return replace(progress, bucket=progress.bucket + 1, after_key=None, passed=0)
    return replace(progress, after_key=after, passed=progress.passed + living)
