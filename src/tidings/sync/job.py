"""
The job: make a plan from a dump and the state. The feed is not changed.

Data that were read are stored as Parquet in the working folder. Every later step reads a part of
them, and a gzipped dump, which only one core can read, is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidings.aws.effects import now_ms
from tidings.core.errors import InvalidOperation
from tidings.core.model import timestamps
from tidings.core.model.operations import lower_case
from tidings.core.sync import dumps
from tidings.core.sync import watermark as watermarks
from tidings.core.sync.dumps import Found, Objection, Planned, moment, timestamp_of
from tidings.core.sync.watermark import Newest, Watermark
from tidings.sync import bad_input, diff, dump, plan
from tidings.sync.bad_input import BadDump, BadLine
from tidings.sync.engines import engine
from tidings.sync.engines.spark_session import SPARK_ERRORS
from tidings.sync.plan import NAMES, Stopped, Summary
from tidings.sync.state import StateSource

ROWS_PER_PARTITION = 500_000  # one side of a partition is held in memory: about 200 MB
# These files are written once and read once, completely. An index would take a tenth of the time.
_KEPT = {"parquet.enable.dictionary": "false", "parquet.column.statistics.enabled": "false"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    The options of a sync. *types* are encoded as in a key; empty means all.

    *as_of* is the start of the dump; if None, its newest line is used.
    """

    types: frozenset[str] = frozenset()
    deletes: bool = True
    skip_bad: int = 0
    expected: int | None = None
    delete_share_max: float = dumps.DELETE_SHARE_MAX
    as_of: Watermark | None = None


def types_named(text: str) -> frozenset[str]:
    """Return the comma-separated types in *text*, encoded as the first part of a key."""
    named = (lower_case(name.strip()) for name in text.split(","))
    return frozenset(name.replace("%", "%25").replace("/", "%2F") for name in named if name)


@dataclass(frozen=True, slots=True)
class _Told:
    """The counts of some lines: *objects* lines describe one, *declared* comes from end lines."""

    lines: int = 0
    objects: int = 0
    oldest: str | None = None
    newest: str | None = None
    bad: int = 0
    declared: int | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """
    The state: *rows* of the selected types, *count* of them, and *objects* that are not deleted.
    """

    rows: DataFrame
    count: int = 0
    objects: int = 0


@dataclass(frozen=True, slots=True)
class _Compared:
    """The result of a comparison. It is invalid unless *once*: each object is in one line."""

    changes: DataFrame
    by_type: dict[str, dict[str, int]]
    untouched: int
    once: bool

    def summed(self, summary: Summary) -> Summary:
        """Return *summary* with these counts."""
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
    """
    One job. *folder* is its working folder: local, or `s3://`.

    *phase* is called with the name of each phase. The plan goes to *plan*, or to the folder `plan`
    in *folder*. With *for_approval* the parts are written even if a guard objects, if a person may
    overrule it. *names* are the originals of copied files, for messages.
    """

    spark: SparkSession
    folder: str
    wishes: Wishes
    phase: Callable[[str], None]
    plan: str | None = None
    for_approval: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def make_plan(self, paths: list[str], source: StateSource, *, through: int) -> Summary:
        """
        Write the plan.

        Raises:
            BadDump: a line of the dump is invalid, or is in the future and *as_of* is not set.
            BadFile: a file of the dump cannot be read.
            Stopped: a guard objects. The parts are not written, unless *for_approval* is set.
            BadExport: the source is an export and incomplete.
        """
        self.phase("reading the dump")
        lines, summary, watermark = self._read_dump(paths)
        self.phase("reading the state")
        state = self._read_state(source, watermark)
        self.phase("comparing")
        self._divide(max(summary.lines, state.objects))
        compared = self._compare(lines, state)
        summary = compared.summed(replace(summary, through=through, objects=state.objects))
        planned = Planned(summary.deletes, summary.objects)
        objection = dumps.check_plan(planned, share_max=self.wishes.delete_share_max)
        if objection is None or self.for_approval:
            self.phase("writing the plan")
            plan.write_parts(compared.changes, self.plan or f"{self.folder}/plan", summary.events)
        self._guard(objection, summary)
        return summary

    def _read_dump(self, paths: list[str]) -> tuple[DataFrame, Summary, Watermark]:
        """Return the checked lines of the selected types, and the watermark of the dump."""
        lines, known = self._all_lines(paths)
        read, counts = None, _Told()
        if known.lines > known.objects:
            read, counts = self._read_core(lines)
        if read is not None and counts.bad > self.wishes.skip_bad:
            raise BadDump(counts.bad, self._first(read.where("error IS NOT NULL"), lines))
        summary = _summed(known, counts, expected=self.wishes.expected)
        self._check(summary, counts.declared)
        described = lines if read is None else dump.described(lines, read)
        described = dump.of_types(described, self.wishes.types)
        return described, summary, self._watermark(described, lines, summary)

    def _all_lines(self, paths: list[str]) -> tuple[DataFrame, _Told]:
        lines = F.count(F.lit(1)).alias("lines")
        try:
            recognised = dump.recognised(engine.current().text(self.spark, paths))
            kept, counts = self._observed(recognised, "lines", lines, *self._objects())
        except SPARK_ERRORS as error:
            file = bad_input.named(str(error), self.names)
            if file is not None and file.is_cut:
                raise Stopped(file.objection(), Summary()) from None
            raise file or error from None
        return kept, _Told(**counts)

    def _read_core(self, lines: DataFrame) -> tuple[DataFrame, _Told]:
        bad, declared = F.count("error").alias("bad"), F.sum("end").alias("declared")
        read = dump.asked_core(lines)
        kept, counts = self._observed(read, "asked", bad, declared, *self._objects())
        return kept, _Told(**counts)

    def _objects(self) -> list[Column]:
        """Return the columns that count all objects, and the time span of the selected types."""
        of_types = F.when(dump.is_of(self.wishes.types), F.col("moment"))
        span = [F.min(of_types).alias("oldest"), F.max(of_types).alias("newest")]
        return [F.count("key").alias("objects"), *span]

    def _watermark(self, described: DataFrame, lines: DataFrame, summary: Summary) -> Watermark:
        """
        Return the watermark of *described*, a subset of *lines*.

        Without deletes, the newest line has no effect, whatever its time.
        """
        if self.wishes.as_of is not None:
            return self.wishes.as_of
        newest_ms, now = timestamps.to_ms(summary.newest), now_ms()
        if not self.wishes.deletes:
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
        return bad_input.first(bad, lines, self.names)

    def _read_state(self, source: StateSource, watermark: Watermark) -> _State:
        wanted = dump.is_of(self.wishes.types)
        count = F.count_if(wanted).alias("count")
        objects = F.count_if(~F.col("deleted") & wanted).alias("objects")
        rows = diff.judged(source.table(self.spark), watermark)
        rows, counts = self._observed(rows, "rows", count, objects)
        source.check()
        return _State(dump.of_types(rows, self.wishes.types), **counts)

    def _check(self, summary: Summary, declared: int | None) -> None:
        counted = Found(summary.lines + summary.bad_lines, declared)
        self._guard(dumps.check_dump(counted, expected=self.wishes.expected), summary)
        if not summary.newest:  # no valid line of the selected types is left
            self._guard(dumps.check_dump(Found(0)), summary)

    def _compare(self, lines: DataFrame, state: _State) -> _Compared:
        """
        Return the necessary changes, stored, with their counts.

        In most dumps each object is in one line. The result of the join shows if this is true,
        which costs less than a search for repeated objects. Only if it is false, the last lines are
        selected.
        """
        compared = self._joined(lines, state)
        return compared if compared.once else self._joined(dump.latest(lines), state)

    def _joined(self, lines: DataFrame, state: _State) -> _Compared:
        compared = diff.compared(lines, state.rows, deletes=self.wishes.deletes)
        agrees = F.col("event").isNull() & ~F.col("deleted")
        untouched = F.count_if(agrees).alias("untouched")
        met = F.count_if(F.col("at") != "").alias("met")  # a row once for each line of its object
        observed, counted = engine.current().observed(compared, untouched, met)
        changes = self._kept(observed.where("event IS NOT NULL"), "changes")
        by_type, once = _by_type(changes)
        counts = counted(compared)
        return _Compared(
            changes, by_type, counts["untouched"], once and counts["met"] == state.count
        )

    def _divide(self, size: int) -> None:
        """Set the number of partitions so that a part of either side fits into memory."""
        cores = engine.current().cores(self.spark)
        count = max(cores, -(-size // ROWS_PER_PARTITION))
        self.spark.conf.set("spark.sql.shuffle.partitions", count)

    def _kept(self, table: DataFrame, name: str) -> DataFrame:
        """Return *table*, computed once and stored."""
        path = f"{self.folder}/{name}"
        table.write.mode("overwrite").options(**_KEPT).parquet(path)
        return self.spark.read.schema(table.schema).parquet(path)

    def _observed(
        self, table: DataFrame, name: str, *counts: Column
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Return *table*, stored, and *counts* by name, which are computed in the same pass."""
        observed, counted = engine.current().observed(table, *counts)
        kept = self._kept(observed, name)
        return kept, counted(kept)

    def _guard(self, objection: Objection | None, summary: Summary) -> None:
        if objection is not None:
            raise Stopped(objection, summary)


def _summed(known: _Told, others: _Told, *, expected: int | None) -> Summary:
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
    """Return the number of each event for each type, and True if each object occurs once."""
    kind = F.substring_index("key", "/", 1).alias("type")
    different = F.count_distinct(dump.hash_of_key())
    groups = changes.groupBy(kind, "event").agg(F.count(F.lit(1)), different).collect()
    counts: dict[str, dict[str, int]] = {}
    for name, event, count, _ in groups:
        plain = name.replace("%2F", "/").replace("%25", "%")
        counts.setdefault(plain, {})[event] = count
    return counts, all(count == objects for *_, count, objects in groups)
