"""Decide whether a store may write to its target, and empty it.

A store marks its target with its consumer and feed, because a copy begins with a deletion of
everything in the target. In addition to the mark, it counts the batches that it has written, and
reports this number with the acknowledgement of each batch. A target with a lower number than the
feed has was restored. The stores read and write mark and number; the rules are only here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidings.pipelines.messages import WrongPipeline

_INTRODUCTION = "tidings: "
_PREFIX = f"{_INTRODUCTION}consumer "
OURS = "belongs to this consumer"
EMPTY = "is empty; the first start marks it as this consumer's"
EARLIER = "was filled by an earlier release for this consumer; the next start marks it"
ADOPTED = "is adopted; the next copy replaces its contents"


class NotOurs(WrongPipeline):
    """The target of a store belongs to another consumer, or has data of an unknown origin."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The consumer that a store writes for, and its feed.

    *is_known* is True if the consumer had a position in the feed before the store was opened, and
    *is_copied* if it has acknowledged a copy of every object, so that its target has a mark.
    *adopt* is the number of rows that a target of another owner must have to be taken over.
    *written* is the number of written batches that the feed has, 0 before a copy.
    """

    consumer: str
    feed: str = ""
    is_known: bool = False
    is_copied: bool = False
    adopt: int | None = None
    written: int = 0

    @property
    def mark(self) -> str:
        return f"{_PREFIX}{self.consumer} of feed {self.feed}"


@dataclass(frozen=True, slots=True)
class Target:
    """The state of a target. *name* describes it for people.

    *mark* is "" without a mark. *is_earlier* is True if an earlier release, which wrote no marks,
    filled the target for the same consumer. *count* returns the number of rows, objects or files.
    *written* is the number of batches that the target has counted.
    """

    name: str
    mark: str
    is_empty: bool
    is_earlier: bool
    count: Callable[[], int]
    written: int = 0


def claim(owner: Owner, target: Target) -> str:
    """Return why *owner* may use *target*: `OURS`, or the reason for which it must be marked.

    Raises:
        NotOurs: the target belongs to another owner, has data of an unknown origin, or has lost
            what the consumer has written.
    """
    is_behind, is_marked = target.written < owner.written, target.mark != ""
    if target.mark == owner.mark and not is_behind:
        return OURS
    is_lost = is_behind or (owner.is_copied and not target.is_earlier)
    if not is_marked and target.is_empty and not is_lost:
        return EMPTY
    if not is_marked and target.is_earlier and not is_behind:
        return EARLIER
    rows = 0 if target.is_empty else target.count()  # it may also be missing
    if rows == owner.adopt:
        return ADOPTED
    if target.mark == owner.mark or (not is_marked and (target.is_empty or target.is_earlier)):
        found = f"has {target.written:,} of the {owner.written:,} batches"
        if target.is_empty and not is_marked:
            found = "is empty"
        raise NotOurs(
            f"{target.name} {found}, although {owner.consumer} has written to it or to another"
            f" target; copy every object with `tidings consumers mark {owner.consumer} copy --why"
            f" restored`, or continue without with `tidings pipeline run --adopt"
            f" {_store(owner)}={rows}`"
        )
    found = target.mark.removeprefix(_INTRODUCTION) or "an unknown origin (no mark)"
    given = "" if owner.adopt is None else f" (--adopt gave {owner.adopt:,})"
    raise NotOurs(
        f"{target.name} has {rows:,} rows{given} of {found}, which must not be changed for"
        f" {owner.mark.removeprefix(_INTRODUCTION)}; name another target, or take this one over"
        f" once with `tidings pipeline run --adopt {_store(owner)}={rows}`"
    )


def _store(owner: Owner) -> str:
    return owner.consumer.partition(".")[2]


class OwnedStore:
    """The base of stores that mark their target.

    *written* is the number of written batches in the target, as far as this process knows.
    """

    _owner = Owner("")
    written = 0

    def assign(self, owner: Owner) -> None:
        """Set the owner for the next `open`, which otherwise knows only the consumer's name."""
        self._owner = owner

    def inspect(self) -> Target | None:
        """Return the target without changing it; None if it depends on the messages."""
        raise NotImplementedError

    def count_batches(self) -> None:
        """Write the number of batches to the target, if `write` has not done it."""

    def count(self) -> int | None:
        """Return the number of objects in the target; None if the store does not count them."""
        return None

    def verdict(self) -> str:
        """Return in a sentence what a start would do with the target.

        Raises:
            NotOurs: the start would fail.
        """
        target = self.inspect()
        if target is None:
            return f"{self}: each index is checked before the first message for it is written"
        return f"{target.name} {claim(self._owner, target)}"

    def close(self) -> None:
        raise NotImplementedError

    def _own(self, consumer: str) -> None:
        if self._owner.consumer != consumer:
            self._owner = Owner(consumer)

    def _claim(self, target: Target) -> str:
        reason = claim(self._owner, target)
        self.written = max(target.written, self._owner.written)
        return reason

    def _verify(self, mark: str, written: int) -> None:
        """Check the mark and the number of batches in the transaction that writes to the target."""
        if mark != self._owner.mark:
            found = mark or "none"
            raise WrongPipeline(f"{self} was marked for {self._owner.consumer}, now it has {found}")
        if written < self.written:
            raise WrongPipeline(f"{self} had {self.written} batches, now it has {written}")


def mark_in(text: str) -> str:
    """Return the mark in a comment, which may have other lines; "" if it has none."""
    return next((line for line in text.splitlines() if line.startswith(_PREFIX)), "")


def with_mark(text: str, mark: str) -> str:
    """Return the comment *text* with *mark* instead of an earlier mark."""
    return "\n".join([*(line for line in text.splitlines() if line != mark_in(text)), mark])


MARKS, FENCES = "tidings_marks", "tidings_writers"
Run = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class TableMarks:
    """The mark of *table*: a line of its comment, and a row of `tidings_marks`.

    The row counts only for the same *incarnation* of the table. It is used if the comment could not
    be written, and it shows that the fence of *writer* is not evidence any more. The number of
    batches is the fence of the writer *counter*. *run* executes a statement, and *state* is the
    query for the incarnation and the comment of a table.
    """

    run: Run
    state: str
    table: str
    writer: str

    def read(self) -> str:
        found = self.run(self.state, self.table)
        if not found:
            return ""
        ((incarnation, comment),) = found
        rows = [] if mark_in(comment) else self._rows()
        return mark_in(comment) or next((mark for at, mark in rows if at == incarnation), "")

    def comment(self, mark: str) -> str:
        """Return the comment of the table with *mark*."""
        ((_, comment),) = self.run(self.state, self.table)
        return with_mark(comment, mark)

    def record(self, mark: str) -> None:
        """Write the row. If the comment has the mark already, the row counts for no incarnation.

        MySQL shows the time of creation in seconds, so a table that was made again soon after may
        have the same one.
        """
        ((incarnation, comment),) = self.run(self.state, self.table)
        incarnation = "" if mark_in(comment) == mark else incarnation
        self.run(f"DELETE FROM {MARKS} WHERE target = %s", self.table)
        self.run(f"INSERT INTO {MARKS} VALUES (%s, %s, %s)", self.table, incarnation, mark)

    @property
    def counter(self) -> str:
        return f"{self.writer}:written"

    def adopt(self, written: int) -> None:
        """Begin with the number *written*, and without fences, which may be of an earlier feed."""
        self.run(f"DELETE FROM {FENCES} WHERE writer IN (%s, %s)", self.writer, self.counter)
        self.run(f"INSERT INTO {FENCES} VALUES (%s, %s)", self.counter, written)

    def target(self, name: str, quoted: str) -> Target:
        """Return the target; *quoted* is the name of the table in SQL."""
        is_there, is_fenced = (bool(self.run(self.state, each)) for each in (self.table, FENCES))
        fence = f"SELECT fence FROM {FENCES} WHERE writer = %s"
        written = self.run(fence, self.counter) if is_fenced else []
        return Target(
            name,
            self.read(),
            not (is_there and self.run(f"SELECT 1 FROM {quoted} LIMIT 1")),
            is_fenced and bool(self.run(fence, self.writer)) and not self._rows(),
            lambda: int(self.run(f"SELECT count(*) FROM {quoted}")[0][0]) if is_there else 0,
            written[0][0] if written else 0,
        )

    def _rows(self) -> Sequence[Any]:
        if not self.run(self.state, MARKS):
            return []
        return self.run(f"SELECT incarnation, mark FROM {MARKS} WHERE target = %s", self.table)
