"""The record of a feed name, and the ports for records and for the removal of a feed's data.

A name has one record, with the state of its latest feed and the removals of earlier ones. One
conditional write of the record therefore creates or deletes a feed. A feed that is only configured
(`TIDINGS_FEEDS`) has no record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidings.core import limits
from tidings.core.model.feeds import key_of
from tidings.core.records import HOST_RECORDS, Kind, Layout, Records, Write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.records import RecordStore

LIVE, DELETING, DELETED = "live", "deleting", "deleted"
TABLES_PENDING, TABLES_KEPT, TABLES_DROPPED = "pending", "kept", "dropped"


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of the data of the deleted feed *number* of a name.

    *place* is the position in the current pass, as `FeedData.remove` returned it. *passes* counts
    complete passes: the second one removes what slow processes wrote during the first. *counts* has
    the number of items removed, by location. *tables* is the state of the feed's Iceberg tables:
    they are kept unless the request named them, and the job of the lake drops them. *done_ms* is 0
    until everything except the tables is removed.
    """

    number: int
    deleted_ms: int
    place: str = ""
    passes: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    tables: str = TABLES_KEPT
    done_ms: int = 0

    @property
    def is_done(self) -> bool:
        """Return True if nothing is left, except for tables that are kept."""
        return bool(self.done_ms) and self.tables != TABLES_PENDING


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """The feeds of one *name*. The latest one has the *number*, and exists if *is_live* is True.

    *created_ms*, *deleted_ms* and *by*, the principal of the last change, describe the latest feed.
    They are 0 and "" for a feed that was only configured. *last_page* is the highest page number of
    all deleted feeds of the name. *removals* has every unfinished removal and the latest finished
    ones, in the order of their numbers. A write is refused if *version* has changed in the
    meantime.
    """

    name: str
    number: int = 1
    is_live: bool = True
    created_ms: int = 0
    deleted_ms: int = 0
    by: str = ""
    last_page: int = 0
    removals: tuple[Removal, ...] = ()
    version: int = 0

    @property
    def key(self) -> str:
        """Return the key of the latest feed."""
        return key_of(self.name, self.number)

    @property
    def unfinished(self) -> tuple[Removal, ...]:
        """Return the removals that are not done."""
        return tuple(each for each in self.removals if not each.is_done)

    @property
    def state(self) -> str:
        """Return `LIVE`, `DELETING` while data of the latest feed is left, or `DELETED`."""
        if self.is_live:
            return LIVE
        return DELETING if any(each.number == self.number for each in self.unfinished) else DELETED

    def with_removal(self, removal: Removal) -> FeedRecord:
        """Return this record with *removal*, in place of the one with its number, if any."""
        others = [each for each in self.removals if each.number != removal.number]
        removals = sorted([*others, removal], key=lambda each: each.number)
        done = [each.number for each in removals if each.is_done]
        old = {*done[: -limits.REMOVALS_KEPT]}
        return replace(self, removals=tuple(each for each in removals if each.number not in old))


FEEDS, REMOVING = Kind("feed", "feeds"), Kind("feed-removal", "removing")
_REMOVAL = Layout(
    Removal,
    {"deleted_ms": "deleted", "done_ms": "done"},
    {"counts": (dict, lambda counts: tuple(sorted(counts.items())))},
)
_LAYOUT = Layout(
    FeedRecord,
    {"is_live": "live", "created_ms": "created", "deleted_ms": "deleted", "last_page": "last"},
    {"removals": _REMOVAL.nested_tuple},
    name="name",
    always=("is_live",),
)


class FeedStore:
    """The records of a host. A feed that is only configured has no record.

    A mark of the kind `REMOVING` is written together with a record that has an unfinished removal,
    so that a search for them does not read the others.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = Records(records, FEEDS, _LAYOUT)

    def record(self, name: str) -> FeedRecord | None:
        """Return the record of *name*, strongly consistent."""
        return self._records.get(HOST_RECORDS, name)

    def records(self, after: str = "", limit: int = limits.FEEDS_LISTED) -> Sequence[FeedRecord]:
        """Return at most *limit* records of names above *after*, ordered by name."""
        return [*self._records.all(HOST_RECORDS, after=after, limit=limit)]

    def unfinished(self) -> Sequence[FeedRecord]:
        """Return the records with a removal that is not done; an idle host pays one small read."""
        marks = self._records.store.query(HOST_RECORDS, REMOVING)
        records = (self.record(mark.name) for mark in marks)
        return [record for record in records if record is not None and record.unfinished]

    def save(self, record: FeedRecord) -> bool:
        """Write *record* if the stored version is `record.version`; return False otherwise.

        The new stored version is `record.version + 1`. A record that does not exist has version 0.
        """
        writes = [self._records.put(record)]
        if record.removals:
            mark = {"number": record.number} if record.unfinished else None
            writes.append(Write(REMOVING, record.name, mark))
        return self._records.store.write(HOST_RECORDS, writes)


class Removed(NamedTuple):
    """The result of one call of `FeedData.remove`.

    *resume_at* is the position to continue at, None at the end. *counts* has the number of items
    that were removed, by location.
    """

    resume_at: str | None
    counts: Mapping[str, int]


class FeedData(Protocol):
    """The data that a host has of feeds, in one or several stores."""

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """Remove data of the feed *key* in small steps, until there is none or until *until_ms*.

        *resume_at* is the position at which the previous call stopped, "" at first. A call may
        repeat the work of an earlier call that was killed. *until_ms* is a time of
        `Runtime.steady`. Each call does at least one step.

        Raises:
            Unavailable: a store does not answer; call again with the same *resume_at*.
        """
