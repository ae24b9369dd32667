"""
The job: from a dump and the state to a plan. Nothing of the feed is changed here.

What was read is kept as Parquet below the working folder: every later step reads a part of it,
and a gzipped dump, which only one core can read, is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tidings.aws.runtime.clock import now_ms
from tidings.core.errors import InvalidOperation
from tidings.core.model import timestamps
from tidings.core.model.operations import lower_case
from tidings.core.sync import safety
from tidings.core.sync import watermark as watermarks
from tidings.core.sync.dump import moment, timestamp_of
from tidings.core.sync.safety import Found, Objection, Planned
from tidings.core.sync.watermark import Newest, Watermark
from tidings.sync import bad_input, diff, dump, plan
from tidings.sync.bad_input import BadLine
from tidings.sync.engines import engine
from tidings.sync.engines.spark_session import SPARK_ERRORS
from tidings.sync.plan import NAMES, Stopped, Summary
from tidings.sync.state import StateSource

_ENDS_EARLY = Objection("truncated_dump", "the dump ends early: its gzip data are cut off")
ROWS_PER_PARTITION = 500_000  # one side of a partition is held in memory: some 200 MB
# What is kept is written once and read once, whole: what helps to find a part of it would take
# a tenth of the time.
_KEPT = {"parquet.enable.dictionary": "false", "parquet.column.statistics.enabled": "false"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    What whoever runs a sync may ask for. *types* are encoded as in a key; none means all.

    *as_of* says when the dump began; None: its newest line has to.
    """

    types: frozenset[str] = frozenset()
    deletes: bool = True
    skip_bad: int = 0
    expected: int | None = None
    delete_share_max: float = safety.DELETE_SHARE_MAX
    as_of: Watermark | None = None


def types_named(text: str) -> frozenset[str]:
    """The types in *text*, comma-separated, as the first part of a key."""
    named = (lower_case(name.strip()) for name in text.split(","))
    return frozenset(name.replace("%", "%25").replace("/", "%2F") for name in named if name)


@dataclass(frozen=True, slots=True)
class _Told:
    """Of some lines: *objects* are those that say what one is, *declared* is by end lines."""

    lines: int = 0
    objects: int = 0
    oldest: str | None = None
    newest: str | None = None
    bad: int = 0
    declared: int | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """*rows* are those of the types in question, *count* in all; *objects* of them live."""

    rows: DataFrame
    count: int = 0
    objects: int = 0


@dataclass(frozen=True, slots=True)
class _Compared:
    """Where not every object of the dump came *once*, none of it holds."""

    changes: DataFrame
    by_type: dict[str, dict[str, int]]
    untouched: int
    once: bool

    def summed(self, summary: Summary) -> Summary:
        """*summary* with these numbers."""
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


class BadDump(Exception):
    """More lines break a rule than may be skipped; the first of them are named."""

    def __init__(self, count: int, first: list[BadLine]) -> None:
        self.count, self.first = count, first
        super().__init__(f"{count:,} bad line{'s' if count != 1 else ''}")

    def with_names(self, names: Mapping[str, str]) -> BadDump:
        """The same, where a path that is a copy is called by what it is a copy of."""
        return BadDump(
            self.count, [replace(each, path=names.get(each.path, each.path)) for each in self.first]
        )


@dataclass(frozen=True, slots=True)
class Job:
    """
    *folder* is where it works: local, or `s3://`. *phase* is told what begins. The plan goes to
    *plan*, or to the folder `plan` in *folder*. *for_approval*: the parts are written also where
    a guard objects that somebody may overrule.
    """

    spark: SparkSession
    folder: str
    wishes: Wishes
    phase: Callable[[str], None]
    plan: str | None = None
    for_approval: bool = False

    def make_plan(self, paths: list[str], source: StateSource, *, through: int) -> Summary:
        """
        Write the plan.

        Raises:
            BadDump: a line of the dump breaks a rule, or comes from the future and nobody said
                when the dump began.
            BadFile: a file of it cannot be read.
            Stopped: a guard objects. The parts are not written, but see *for_approval*.
            BadExport: the export that is the source is not whole.
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
        objection = safety.check_plan(planned, share_max=self.wishes.delete_share_max)
        if objection is None or self.for_approval:
            self.phase("writing the plan")
            plan.write_parts(compared.changes, self.plan or f"{self.folder}/plan", summary.events)
        self._guard(objection, summary)
        return summary

    def _read_dump(self, paths: list[str]) -> tuple[DataFrame, Summary, Watermark]:
        """The lines of the types in question, checked as a whole, and when they were true."""
        lines, known = self._all_lines(paths)
        read, counts = None, _Told()
        if known.lines > known.objects:
            read, counts = self._read_core(lines)
        if read is not None and counts.bad > self.wishes.skip_bad:
            raise BadDump(counts.bad, bad_input.first(read.where("error IS NOT NULL"), lines))
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
            if bad_input.is_cut(str(error)):
                raise Stopped(_ENDS_EARLY, Summary()) from None
            raise bad_input.named(str(error)) or error from None
        return kept, _Told(**counts)

    def _read_core(self, lines: DataFrame) -> tuple[DataFrame, _Told]:
        bad, declared = F.count("error").alias("bad"), F.sum("end").alias("declared")
        read = dump.asked_core(lines)
        kept, counts = self._observed(read, "asked", bad, declared, *self._objects())
        return kept, _Told(**counts)

    def _objects(self) -> list[Column]:
        """All objects are counted; the span is that of the types in question."""
        of_types = F.when(dump.is_of(self.wishes.types), F.col("moment"))
        span = [F.min(of_types).alias("oldest"), F.max(of_types).alias("newest")]
        return [F.count("key").alias("objects"), *span]

    def _watermark(self, described: DataFrame, lines: DataFrame, summary: Summary) -> Watermark:
        """
        That of *described*, which are some of all *lines*. Where nothing is deleted, the newest one
        decides nothing, whatever time it tells.
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
            raise BadDump(
                bad.count(), bad_input.first(bad.withColumn("error", reason), lines)
            ) from None

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
        self._guard(safety.check_dump(counted, expected=self.wishes.expected), summary)
        if not summary.newest:  # nothing is left of the types in question, or nothing was good
            self._guard(safety.check_dump(Found(0)), summary)

    def _compare(self, lines: DataFrame, state: _State) -> _Compared:
        """
        What has to be changed, kept, and its numbers.

        In most dumps an object comes once. Whether it does shows in what is found, which takes
        less than to look for the others before; only then the last lines are looked for.
        """
        compared = self._joined(lines, state)
        return compared if compared.once else self._joined(dump.latest(lines), state)

    def _joined(self, lines: DataFrame, state: _State) -> _Compared:
        compared = diff.compared(lines, state.rows, deletes=self.wishes.deletes)
        agrees = F.col("event").isNull() & ~F.col("deleted")
        untouched = F.count_if(agrees).alias("untouched")
        met = F.count_if(F.col("at") != "").alias("met")  # a row is, by each line of its object
        observed, counted = engine.current().observed(compared, untouched, met)
        changes = self._kept(observed.where("event IS NOT NULL"), "changes")
        by_type, once = _by_type(changes)
        counts = counted(compared)
        return _Compared(
            changes, by_type, counts["untouched"], once and counts["met"] == state.count
        )

    def _divide(self, size: int) -> None:
        """So many partitions that a part of either side fits into memory."""
        cores = engine.current().cores(self.spark)
        count = max(cores, -(-size // ROWS_PER_PARTITION))
        self.spark.conf.set("spark.sql.shuffle.partitions", count)

    def _kept(self, table: DataFrame, name: str) -> DataFrame:
        """*table*, computed once."""
        path = f"{self.folder}/{name}"
        table.write.mode("overwrite").options(**_KEPT).parquet(path)
        return self.spark.read.schema(table.schema).parquet(path)

    def _observed(
        self, table: DataFrame, name: str, *counts: Column
    ) -> tuple[DataFrame, dict[str, Any]]:
        """*table*, kept, and *counts* by their names: taken meanwhile, without another pass."""
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
    """How many of each event, for each type that has any; and whether each object comes once."""
    kind = F.substring_index("key", "/", 1).alias("type")
    different = F.count_distinct(dump.hash_of_key())
    groups = changes.groupBy(kind, "event").agg(F.count(F.lit(1)), different).collect()
    counts: dict[str, dict[str, int]] = {}
    for name, event, count, _ in groups:
        plain = name.replace("%2F", "/").replace("%25", "%")
        counts.setdefault(plain, {})[event] = count
    return counts, all(count == objects for *_, count, objects in groups)
