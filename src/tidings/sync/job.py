"""Compare a dump with the state, and write a plan, without changing the feed.

The job stores the dump and the state as Parquet in the working folder, because every later step
reads a part of them. So a gzipped dump, which only one core can read, is read only once. One full
outer join by hash, without a sort, compares the dump with the state. The rules are those of
`tidings.core.sync.dumps`, and tests compare the results of the job with those of that module.

A plan consists of a summary, and of corrections in parts of gzipped NDJSON, on disk or in a bucket:

    1-insert/*.txt.gz   2-update/...   3-delete/...   summary.json

Spark names its parts `part-*`. The parts are applied in the order of their names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tidings.aws.effects import now_ms
from tidings.core.errors import InvalidOperation
from tidings.core.model import timestamps
from tidings.core.model.filters import parse_list
from tidings.core.model.operations import EVENTS, as_event, lower_case
from tidings.core.sync import dumps
from tidings.core.sync import watermark as watermarks
from tidings.core.sync.corrections import Correction, Position, correction, encode
from tidings.core.sync.dumps import (
    Described,
    Found,
    Objection,
    Planned,
    moment,
    read_line,
    timestamp_of,
)
from tidings.core.sync.watermark import Moment, Newest, Reached, Watermark
from tidings.sync import dump
from tidings.sync.dump import BadDump, BadLine
from tidings.sync.feed import NAMES
from tidings.sync.spark_session import SPARK_ERRORS, current
from tidings.sync.state import StateSource

# The maximum number of lines in a part, which then has about 2 MB. A part is applied in a few
# seconds, so a retry repeats little.
PART_LINES = 50_000
SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a plan.

    *through* is the checkpoint of the follower `state` before the rows of the state were read.
    *untouched* counts the existing objects that need no change, because they agree with the dump,
    are older in the dump, or must not be changed or deleted. *notes* say what the feed stores in
    another way than the dump has it, each with its number of lines.
    """

    creates: int = 0
    updates: int = 0
    deletes: int = 0
    untouched: int = 0
    by_type: dict[str, dict[str, int]] = field(default_factory=dict)
    lines: int = 0
    bad_lines: int = 0
    oldest: str = ""
    newest: str = ""
    known_whole: bool = False
    objects: int = 0
    through: int = 0
    notes: dict[str, int] = field(default_factory=dict)

    @property
    def corrections(self) -> int:
        return self.creates + self.updates + self.deletes

    @property
    def events(self) -> list[str]:
        """Return the events that occur in the plan, in the order in which they are applied."""
        return [event for event in EVENTS if getattr(self, NAMES[event])]

    def encode(self) -> str:
        return json.dumps(asdict(self))


class Stopped(Exception):
    """A guard, which is a check of the dump or of the plan, stopped the sync.

    *summary* has the counts so far. If the objection of the guard is allowable, *summary* has all
    counts.
    """

    def __init__(self, objection: Objection, summary: Summary) -> None:
        self.objection, self.summary = objection, summary
        super().__init__(objection.sentence)


def write_parts(changes: DataFrame, folder: str, events: Iterable[str] = EVENTS) -> None:
    """Write the corrections for *changes* to subfolders of *folder*.

    *changes* are the rows of `compared_tables` that have an event, and *events* are the events that
    occur in these rows.
    """
    encoded = F.udf(_encode, StringType(), useArrow=False)
    for event in events:
        lines = changes.where(F.col("event") == event).select(encoded("event", "text", "at"))
        writer = lines.write.mode("overwrite").option("compression", "gzip")
        writer.option("maxRecordsPerFile", PART_LINES).text(f"{folder}/{subfolder(event)}")


def _encode(event: str, text: bytearray, at: str) -> str:
    return encode(correction_from(event, bytes(text), at))


def subfolder(event: str) -> str:
    """Return the folder of an event. Events are applied in the order of the folders' numbers."""
    return f"{EVENTS.index(event) + 1}-{event}"


def correction_from(event: str, text: bytes, at: str) -> Correction:
    """Return the correction of an object at the position *at*.

    *text* is a line of the dump, or for a delete a line of the state.
    """
    line = text.decode()
    if event != "delete":
        described = read_line(text)
        assert isinstance(described, Described)  # only lines that describe an object are compared
        line = described.line
    position = Position(int(at[:10] or "0", 16), int(at[10:] or "0", 16))
    return correction(as_event(line, event), position)


def mark_later(rows: DataFrame, watermark: Watermark) -> DataFrame:
    """Return *rows* (`engine.ROWS`) with `later`: True if the row changed after *watermark*."""
    return rows.withColumn("later", _later(watermark)).drop("committed")


def compared_tables(dump: DataFrame, rows: DataFrame, *, deletes: bool = True) -> DataFrame:
    """Return every object with its `event`: insert, update, delete, or null if it needs no change.

    *dump* has one line for each object, and *rows* come from `mark_later`. In the result, `text` is
    the line of the dump, or the line of the state if the dump has no line. `at` is the position of
    the object's row, or "" if the object has no row.
    """
    described = dump.select("key", F.col("moment").alias("dump_moment"), "text")
    known = rows.select("key", "at", "deleted", "later", "moment", F.col("line").cast("binary"))
    joined = described.join(known.hint("shuffle_hash"), "key", "full_outer")
    event = F.when(F.col("later"), F.lit(None)).when(F.col("dump_moment").isNotNull(), _event())
    if deletes:
        event = event.when(~F.col("deleted"), "delete")
    return joined.select(
        "key",
        event.alias("event"),
        F.coalesce("text", "line").alias("text"),
        F.coalesce("at", F.lit("")).alias("at"),
        F.coalesce("deleted", F.lit(False)).alias("deleted"),
    )


def _later(watermark: Watermark) -> Column:
    """Return a column that is true if a row changed after *watermark*.

    It is also true if the time of the change is unknown.
    """
    match watermark:
        case Reached(position):
            later = F.col("at") > position.encode()
        case Moment(ms):
            later = F.col("committed") >= ms
        case newest:
            later = F.col("moment") >= moment(timestamps.from_ms(newest.ms))
    return F.coalesce(later, F.lit(True))


def _event() -> Column:
    """Return the event that makes the state agree with an object of the dump."""
    return (
        F.when(F.col("moment").isNull(), "insert")
        .when(F.col("dump_moment") <= F.col("moment"), F.lit(None))
        .when(F.col("deleted"), "insert")
        .otherwise("update")
    )


ROWS_PER_PARTITION = 500_000  # a join keeps one side of a partition in memory, about 200 MB
# Options that leave out the dictionaries and statistics of Parquet. They would take a tenth of the
# time and be of no use, because each file is written once, and read once and completely.
_KEPT = {"parquet.enable.dictionary": "false", "parquet.column.statistics.enabled": "false"}


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """The options of a sync.

    *types* are encoded as in a key; an empty set means all types. *as_of* is the start of the dump.
    If it is None, the time of the newest line of the dump is used.
    """

    types: frozenset[str] = frozenset()
    deletes: bool = True
    skip_bad: int = 0
    expected: int | None = None
    delete_share_max: float = dumps.DELETE_SHARE_MAX
    as_of: Watermark | None = None


def parse_types(text: str) -> frozenset[str]:
    """Return the types in *text*, encoded like the first part of a key.

    Raises:
        InvalidFilter: see `parse_list`.
    """
    named = (lower_case(name.strip()) for name in parse_list(text, "types"))
    return frozenset(name.replace("%", "%25").replace("/", "%2F") for name in named if name)


@dataclass(frozen=True, slots=True)
class _DumpCounts:
    """The counts of some lines of the dump.

    *objects* is the number of lines that describe an object, and *declared* the sum of the numbers
    in end lines.
    """

    lines: int = 0
    objects: int = 0
    oldest: str | None = None
    newest: str | None = None
    bad: int = 0
    declared: int | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """The *rows* of the state, their *count*, and the number of *objects* that are not deleted."""

    rows: DataFrame
    count: int = 0
    objects: int = 0


@dataclass(frozen=True, slots=True)
class _Compared:
    """The result of a comparison.

    The result is valid only if *once* is True, which means that no object has several lines in the
    dump.
    """

    changes: DataFrame
    by_type: dict[str, dict[str, int]]
    untouched: int
    once: bool

    def add_to(self, summary: Summary) -> Summary:
        """Return *summary* with the counts of this comparison."""
        totals = {
            event: sum(each.get(event, 0) for each in self.by_type.values()) for event in NAMES
        }
        return replace(
            summary,
            creates=totals["insert"],
            updates=totals["update"],
            deletes=totals["delete"],
            untouched=self.untouched,
            by_type={
                name: {NAMES[event]: count for event, count in sorted(each.items())}
                for name, each in sorted(self.by_type.items())
            },
        )


@dataclass(frozen=True, slots=True)
class Job:
    """One job with the working folder *folder*, which is local or starts with `s3://`.

    *phase* is called with the name of each phase. The plan is written to *plan*, also if a guard
    objects, so that a person can approve it. If *plan* is None, the plan is written to the folder
    `plan` in *folder*. *names* maps copied files to their originals, for messages.
    """

    spark: SparkSession
    folder: str
    options: SyncOptions
    phase: Callable[[str], None]
    plan: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def make_plan(self, paths: list[str], source: StateSource, *, through: int) -> Summary:
        """Write the plan.

        Raises:
            BadDump: too many lines are invalid; or *as_of* is not set, and a line has a time in the
                future.
            BadFile: a file of the dump cannot be read.
            Stopped: a guard objects. The parts are not written, unless *plan* is given.
            BadExport: the source is an export that is incomplete.
        """
        self.phase("reading the dump")
        lines, summary, watermark = self._read_dump(paths)
        self.phase("reading the state")
        state = self._read_state(source, watermark)
        self.phase("comparing")
        # Each partition must fit into memory.
        cores = current().cores(self.spark)
        count = max(cores, -(-max(summary.lines, state.objects) // ROWS_PER_PARTITION))
        self.spark.conf.set("spark.sql.shuffle.partitions", count)
        # In most dumps each object has only one line, which the counts of the join show. Computing
        # them costs less than a search for repeated objects. Otherwise, join the last lines only.
        compared = self._join(lines, state)
        if not compared.once:
            compared = self._join(dump.latest(lines), state)
        summary = compared.add_to(replace(summary, through=through, objects=state.objects))
        planned = Planned(summary.deletes, summary.objects)
        objection = dumps.check_plan(planned, share_max=self.options.delete_share_max)
        if objection is None or self.plan:
            self.phase("writing the plan")
            write_parts(compared.changes, self.plan or f"{self.folder}/plan", summary.events)
        self._guard(objection, summary)
        return summary

    def _read_dump(self, paths: list[str]) -> tuple[DataFrame, Summary, Watermark]:
        """Check the dump; return its lines of the selected types, a summary, and the watermark."""
        lines, known = self._all_lines(paths)
        read, counts = None, _DumpCounts()
        if known.lines > known.objects:
            bad, declared = F.count("error").alias("bad"), F.sum("end").alias("declared")
            asked = dump.read_by_core(lines)
            read, found = self._observe(asked, "asked", bad, declared, *self._objects())
            counts = _DumpCounts(**found)
        if read is not None and counts.bad > self.options.skip_bad:
            raise BadDump(counts.bad, self._first(read.where("error IS NOT NULL"), lines))
        summary = _summarize(known, counts, expected=self.options.expected)
        summary = replace(summary, notes=dump.notes_of(lines, read))
        counted = Found(summary.lines + summary.bad_lines, counts.declared)
        self._guard(dumps.check_dump(counted, expected=self.options.expected), summary)
        if not summary.newest:  # the dump has no valid line of the selected types
            self._guard(dumps.check_dump(Found(0)), summary)
        described = lines if read is None else dump.object_lines(lines, read)
        described = dump.of_types(described, self.options.types)
        return described, summary, self._watermark(described, lines, summary)

    def _all_lines(self, paths: list[str]) -> tuple[DataFrame, _DumpCounts]:
        lines = F.count(F.lit(1)).alias("lines")
        try:
            recognised = dump.recognise_lines(current().text(self.spark, paths))
            kept, counts = self._observe(recognised, "lines", lines, *self._objects())
        except SPARK_ERRORS as error:
            file = dump.broken_file(str(error), self.names)
            if file is not None and file.is_cut:
                raise Stopped(file.objection(), Summary()) from None
            raise file or error from None
        return kept, _DumpCounts(**counts)

    def _objects(self) -> list[Column]:
        """Return columns: the count of all objects, and the time span of the selected types."""
        of_types = F.when(dump.is_of(self.options.types), F.col("moment"))
        span = [F.min(of_types).alias("oldest"), F.max(of_types).alias("newest")]
        return [F.count("key").alias("objects"), *span]

    def _watermark(self, described: DataFrame, lines: DataFrame, summary: Summary) -> Watermark:
        """Return the watermark of *described*, a subset of *lines*.

        If nothing is deleted, the newest line may also be in the future.
        """
        if self.options.as_of is not None:
            return self.options.as_of
        newest_ms, now = timestamps.to_ms(summary.newest), now_ms()
        if not self.options.deletes:
            return Newest(newest_ms)
        try:
            return watermarks.newest(newest_ms, now_ms=now)
        except InvalidOperation as error:
            latest = moment(timestamps.from_ms(watermarks.latest_ms(now)))
            bad = described.where(F.col("moment") > latest)
            reason = F.concat(F.lit("timestamp: "), "moment", F.lit(f"Z {error.rule}"))
            first = self._first(bad.withColumn("error", reason), lines)
            raise BadDump(bad.count(), first) from None

    def _first(self, bad: DataFrame, lines: DataFrame) -> list[BadLine]:
        return dump.first_bad(bad, lines, self.names)

    def _read_state(self, source: StateSource, watermark: Watermark) -> _State:
        wanted = dump.is_of(self.options.types)
        count = F.count_if(wanted).alias("count")
        objects = F.count_if(~F.col("deleted") & wanted).alias("objects")
        rows = mark_later(source.table(self.spark), watermark)
        rows, counts = self._observe(rows, "rows", count, objects)
        source.check()
        return _State(dump.of_types(rows, self.options.types), **counts)

    def _join(self, lines: DataFrame, state: _State) -> _Compared:
        compared = compared_tables(lines, state.rows, deletes=self.options.deletes)
        agrees = F.col("event").isNull() & ~F.col("deleted")
        untouched = F.count_if(agrees).alias("untouched")
        # If an object has several lines, its row is counted for each line.
        met = F.count_if(F.col("at") != "").alias("met")
        observed, counted = current().observe(compared, untouched, met)
        changes = self._store(observed.where("event IS NOT NULL"), "changes")
        by_type, once = _by_type(changes)
        counts = counted(compared)
        return _Compared(
            changes, by_type, counts["untouched"], once and counts["met"] == state.count
        )

    def _store(self, table: DataFrame, name: str) -> DataFrame:
        path = f"{self.folder}/{name}"
        table.write.mode("overwrite").options(**_KEPT).parquet(path)
        return self.spark.read.schema(table.schema).parquet(path)

    def _observe(
        self, table: DataFrame, name: str, *counts: Column
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Store *table*, and compute *counts* in the same pass; return the table and the counts."""
        observed, counted = current().observe(table, *counts)
        kept = self._store(observed, name)
        return kept, counted(kept)

    def _guard(self, objection: Objection | None, summary: Summary) -> None:
        if objection is not None:
            raise Stopped(objection, summary)


def _summarize(known: _DumpCounts, others: _DumpCounts, *, expected: int | None) -> Summary:
    oldest = min((each.oldest for each in (known, others) if each.oldest), default="")
    newest = max((each.newest for each in (known, others) if each.newest), default="")
    return Summary(
        lines=known.objects + others.objects,
        bad_lines=others.bad,
        known_whole=others.declared is not None or expected is not None,
        oldest=timestamp_of(oldest) if oldest else "",
        newest=timestamp_of(newest) if newest else "",
    )


def _by_type(changes: DataFrame) -> tuple[dict[str, dict[str, int]], bool]:
    """Return the number of each event by type, and True if each object occurs only once."""
    kind = F.substring_index("key", "/", 1).alias("type")
    different = F.count_distinct(dump.hash_of_key())
    groups = changes.groupBy(kind, "event").agg(F.count(F.lit(1)), different).collect()
    counts: dict[str, dict[str, int]] = {}
    for name, event, count, _ in groups:
        plain = name.replace("%2F", "/").replace("%25", "%")
        counts.setdefault(plain, {})[event] = count
    return counts, all(count == objects for *_, count, objects in groups)
