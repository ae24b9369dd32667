"""Erase objects from the tables of a feed.

An erasure entry in the log names the object (`core.erasure.entries`). For each table, one pass for
all entries of a batch

1. replaces or removes the rows of the objects, as the log replaces its entries,
2. rewrites the data files that have such rows, because a removed row stays in its file,
3. rewrites the manifests that list the old files, because a manifest has the smallest and the
   largest values of the columns of a file,
4. expires all snapshots but the current one, which deletes the old files.

Each step may be repeated. `history` is the last table of a pass, and step 1 erases the erasure
entries in it. Until then, the next run finds the entries again after a crash. If it finds none,
only the files of `history` are left to do. Erased rows always lose their id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from tidings.core.erasure.entries import Position, Scrubber, Target
from tidings.core.erasure.records import erasure_of
from tidings.core.model.cursors import Place
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.operations import ERASURE_MARK, is_erased, key_of, quoted
from tidings.core.state.rows import Row
from tidings.lake import files
from tidings.lake.tables import EVENT, Table
from tidings.lake.warehouse import HISTORY, THROUGH
from tidings.spark.columns import Block, Piece
from tidings.sync.engine import LONG, TEXT, columns

_GONE, _CHANGED = "delete", "update"  # the values of `EVENT` for a row to be removed or replaced
_TARGETS = columns(
    of_type=TEXT, of_id=TEXT, until_page=LONG, until_slot=LONG, own_page=LONG, own_slot=LONG
)
# The columns of `history`, of `latest` and of the table of a type that an erasure changes. Rows of
# erased objects are removed from the last two, so their ids do not change.
_OF_ENTRIES = ("event", "id", "parents", "tags", "changed", "data", "line")
_OF_OBJECTS = ("parents", "line")
_OF_TYPES = ("parents",)
# With more ids than this, Iceberg does not use a list of ids to skip files.
_IDS_MAX = 200


@dataclass(frozen=True, slots=True)
class Named:
    """The content that the erasure of an object of *type* removes."""

    type: str
    target: Target


def pending(history: Table, since: int) -> list[Named]:
    """Return the content that the erasure entries in `history` from page *since* on remove."""
    entries = history.rows().where(
        (F.col("page") >= since)
        & (F.col("event") == "delete")
        & F.endswith("line", F.lit(ERASURE_MARK))
    )
    return [named_by(*row) for row in entries.select("page", "slot", "line").collect()]


def named_by(page: int, slot: int, line: str) -> Named:
    """Return the content that the erasure entry *line* removes, including the entry itself."""
    erasure = erasure_of(Row("", page, slot, 0, line), tombstone_ms=0)
    return Named(erasure.type, replace(erasure, final=True).target)


@dataclass(frozen=True)
class TableEraser:
    """Erases the content *named* from *table*, which is complete up to *through*.

    If *named* is empty, it only removes all deleted rows from the files.
    """

    table: Table
    named: Sequence[Named]
    through: Place

    def run(self) -> int:
        """Erase the rows, and return the number of data files that had such rows.

        Raises:
            Raced: another run writes the table.
        """
        properties = {THROUGH: self.through.encode()}
        old = self._files()
        if old and self._targets:
            rows = self._matching(self.table.rows())
            schema = StructType([*self.table.rows().schema.fields]).add(EVENT, StringType())
            changed = rows.select(*self.table.rows().columns).mapInArrow(self._scrub(), schema)
            self.table.change(changed, self.through)
        if old:
            files.rewrite_files(self.table, old, properties)
            files.remove_empty_files(self.table, old, properties)
            files.rewrite_deletes(self.table)
        files.rewrite_manifests(self.table, properties)
        files.expire_all(self.table)
        return len(old)

    @cached_property
    def _targets(self) -> list[Named]:
        """Return the content that the table may have: objects of its type, and parents."""
        of = self.table.type
        return [each for each in self.named if of in (None, each.type) or each.target.parent]

    def _files(self) -> list[str]:
        """Return the data files with rows to be changed, even if these are already deleted."""
        if not self.named:
            deleted = self.table.rows().groupBy("_file").agg(F.max("_deleted").alias("deleted"))
            return sorted(row["_file"] for row in deleted.where("deleted").collect())
        if not self._targets:
            return []
        of = [] if self.table.type is not None else ["type"]
        rows = self.table.rows().select(*of, "id", "parents", "page", "slot", "_file", "_deleted")
        # Iceberg returns deleted rows only to a query that uses the column `_deleted`.
        found = self._matching(rows).groupBy("_file").agg(F.min("_deleted"))
        return sorted(row["_file"] for row in found.collect())

    def _matching(self, rows: DataFrame) -> DataFrame:
        """Return the *rows* of the objects, and rows that may have one of the parents."""
        objects = [each for each in self._targets if self.table.type in (None, each.type)]
        found = rows.where(F.lit(False))
        if objects:
            found = self._of_objects(rows, objects)
        parents = sorted({each.target.parent for each in self._targets if each.target.parent})
        if parents:
            listed = F.array(*map(F.lit, parents))
            has_parent = F.coalesce(F.arrays_overlap("parents", listed), F.lit(False))
            matching = rows.where(has_parent)
            # A row must be in the result once.
            others = self._of_objects(matching, objects, others=True) if objects else matching
            found = found.unionByName(others)
        return found

    def _of_objects(
        self, rows: DataFrame, objects: Sequence[Named], *, others: bool = False
    ) -> DataFrame:
        """Return the rows of the *objects* before their ends; if *others*, all other rows."""
        ids = sorted({each.target.id for each in objects})
        if not others and len(ids) <= _IDS_MAX:
            rows = rows.where(F.col("id").isin(*ids))
        listed = [
            (each.type, each.target.id, *each.target.until, *each.target.own) for each in objects
        ]
        known = F.broadcast(rows.sparkSession.createDataFrame(listed, _TARGETS))
        on = (F.col("id") == F.col("of_id")) & _is_before("until")
        on |= (F.col("id") == F.col("of_id")) & _is_at("own")
        if self.table.type is None:
            on &= F.col("type") == F.col("of_type")
        return rows.join(known, on, "left_anti" if others else "left_semi")

    def _scrub(self) -> _Scrub:
        by_key = defaultdict(list)
        parents = [each.target for each in self._targets if each.target.parent]
        for each in self._targets:
            by_key[each.target.key].append(each.target)
        scrubbers = {
            key: Scrubber([*of, *(each for each in parents if each.key != key)])
            for key, of in by_key.items()
        }
        return _Scrub(scrubbers, Scrubber(parents), self.table.type, self.table.kind == HISTORY)


def _is_before(prefix: str) -> Column:
    """Return a column that is true if a row is before the position with the names *prefix*."""
    page, slot = F.coalesce("page", F.lit(0)), F.coalesce("slot", F.lit(0))
    ends, at = F.col(f"{prefix}_page"), F.col(f"{prefix}_slot")
    return (page < ends) | ((page == ends) & (slot < at))


def _is_at(prefix: str) -> Column:
    return (F.col("page") == F.col(f"{prefix}_page")) & (F.col("slot") == F.col(f"{prefix}_slot"))


@dataclass(frozen=True)
class _Scrub:
    """The function of a task: it returns the rows that change, with `EVENT`.

    *scrubbers* are those of the erased objects, by key, and *other* is that of all other objects. A
    row of an erased object stays in `history`, and is removed from other tables.
    """

    scrubbers: Mapping[str, Scrubber]
    other: Scrubber
    type: str | None
    is_history: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = self._lines(batch)
            pages, slots = batch["page"].to_pylist(), batch["slot"].to_pylist()
            places = zip(lines, pages, slots, strict=True)
            scrubbed = [self._scrubbed(line, (page or 0, slot or 0)) for line, page, slot in places]
            mask = [new != old for new, old in zip(scrubbed, lines, strict=True)]
            if any(mask):
                yield self._changed(batch, scrubbed).filter(pa.array(mask))

    def _scrubbed(self, line: str, at: Position) -> str:
        return self.scrubbers.get(key_of(line), self.other).scrub_line(line, at)

    def _lines(self, batch: pa.RecordBatch) -> list[str]:
        """Return the line of each row; the rows of a type's table have only a part of it."""
        if self.type is None:
            lines: list[str] = batch["line"].to_pylist()
            return lines
        both = zip(batch["id"].to_pylist(), batch["parents"].to_pylist(), strict=True)
        return [_line(self.type, id, parents or []) for id, parents in both]

    def _changed(self, batch: pa.RecordBatch, lines: list[str]) -> pa.RecordBatch:
        removes = [is_erased(line) and not self.is_history for line in lines]
        events = pa.array([_GONE if gone else _CHANGED for gone in removes], pa.string())
        names = _OF_ENTRIES if self.is_history else _OF_OBJECTS if self.type is None else _OF_TYPES
        block = Block(EVERYTHING)
        block.add(Piece(lines))
        new = dict(zip(names, block.batch(names).columns, strict=True))
        arrays = [
            new[each.name].cast(each.type) if each.name in new else batch[each.name]
            for each in batch.schema
        ]
        return pa.RecordBatch.from_arrays([*arrays, events], names=[*batch.schema.names, EVENT])


def _line(type: str, id: str, parents: Sequence[str]) -> str:
    listed = ",".join(map(quoted, parents))
    return (
        f'{{"event":"update","timestamp":"","parents":[{listed}],'
        f'"type":{quoted(type)},"id":{quoted(id)}}}'
    )
