"""Make a feed agree with a table while others write to both, for `tidings sync table`.

A sync has three steps, and each can be resumed:

1. `rows` reads the table in chunks by its key. It corrects objects that the feed lacks, or has in
   another version.
2. `objects` reads the state, and records the objects without a row in the table.
3. `deletes` deletes the recorded objects, after checking that they are not too many.

An object that differs is a suspect at first. It is corrected only when `tidings.core.sync.live`
reports that the difference lasts.

The progress is stored in a SQLite file. Each save is atomic. After a crash, the next run repeats
the work since the last save. Corrections that are repeated count as done.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import takewhile
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from tidings.aws.effects import now_ms, sleep_ms
from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import NamedFeed, named_feed_options
from tidings.client.files import make_private
from tidings.core import limits
from tidings.core.model.operations import lower_case, type_prefix
from tidings.core.state.rows import Row
from tidings.core.sync import corrections, dumps
from tidings.core.sync.dumps import Objection, Planned
from tidings.core.sync.live import Compare, Difference, Suspects, Verdict, difference
from tidings.core.version import how_to_install
from tidings.lineage.runs import lineage_option
from tidings.sync.cli import (
    Counts,
    Lineage,
    Phases,
    delete_share_option,
    open_feed,
    refusals,
    report_sync,
)

if TYPE_CHECKING:
    from tidings.sync.feed import Feed
    from tidings.sync.postgres import Chunk, ChunkEnd, PostgresTable

IN_MEMORY = Path(":memory:")
_MAKE = """
    CREATE TABLE IF NOT EXISTS standing (one INTEGER PRIMARY KEY CHECK (one = 1), text TEXT);
    CREATE TABLE IF NOT EXISTS missing (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class WrongProgress(Exception):
    """The progress file belongs to another sync, or cannot be used. The message says which."""


@dataclass(slots=True)
class TableSyncState:
    """The progress of a sync.

    *step* is the current step, and *place* the position of this step as JSON. *rows* counts the
    compared rows of the table, and *objects* the compared objects of the feed. *missing* counts
    objects without a row. *creates*, *updates* and *deletes* count differences that lasted.
    *settled* and *restless* count the verdicts of the same names (`live.Verdict`). *applied*,
    *moved* and *done* add up the results of corrections (`apply.Outcome`).
    """

    step: str = ""
    place: list[Any] | None = None
    rows: int = 0
    objects: int = 0
    missing: int = 0
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    settled: int = 0
    restless: int = 0
    applied: int = 0
    moved: int = 0
    done: int = 0


@dataclass(slots=True)
class Progress:
    """The progress file of a sync. *what* identifies the sync by its feed, table and options.

    Raises:
        WrongProgress: the file belongs to another sync, has another format, or is in use.
    """

    path: Path
    what: dict[str, Any]
    state: TableSyncState = field(default_factory=TableSyncState)
    _file: sqlite3.Connection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            if self.path != IN_MEMORY:
                make_private(self.path)
            self._file = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            # The file stays locked until it is closed.
            self._file.execute("PRAGMA locking_mode=EXCLUSIVE")
            # A power failure may lose the last saves. The progress before them is still valid.
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.executescript(_MAKE)
            self._file.execute("BEGIN EXCLUSIVE").execute("COMMIT")
            found = self._file.execute("SELECT text FROM standing").fetchone()
        except sqlite3.Error as error:
            raise WrongProgress(f"{self.path} cannot be used: {error}") from None
        if found is None:
            return
        kept = json.loads(found[0])
        if kept["what"] != self.what:
            other = json.dumps(kept["what"])
            raise WrongProgress(f"{self.path} belongs to another sync: {other}")
        self.state = TableSyncState(**kept["standing"])

    def save(self, missing: Iterable[str] = ()) -> None:
        """Save the progress, and add *missing* to the keys of objects without a row."""
        text = json.dumps({"what": self.what, "standing": asdict(self.state)})
        with self._file, closing(self._file.cursor()) as cursor:
            cursor.execute("BEGIN")
            cursor.executemany("INSERT OR IGNORE INTO missing VALUES (?)", ((m,) for m in missing))
            cursor.execute("INSERT OR REPLACE INTO standing VALUES (1, ?)", (text,))
            cursor.execute("COMMIT")

    def missing(self, after: str, most: int) -> list[str]:
        """Return up to *most* keys of objects without a row, beginning after the key *after*."""
        query = "SELECT key FROM missing WHERE key > ? ORDER BY key LIMIT ?"
        return [key for (key,) in self._file.execute(query, (after, most))]

    def counts(self) -> Counts:
        """Return the counts of the whole sync, including those of earlier runs."""
        return Counts(self.state.rows, self.state.objects, self.state.applied)

    def clear(self) -> None:
        """Delete the progress, so that the next sync starts from the beginning."""
        self._file.executescript("BEGIN; DELETE FROM missing; DELETE FROM standing; COMMIT;")

    def close(self) -> None:
        self._file.close()


ROWS, OBJECTS, DELETES = "rows", "objects", "deletes"
# The maximum number of suspects that wait at once; they take about 30 MB of memory. With a grace of
# one minute, a sync reaches this number if it finds 1,600 suspects per second.
SUSPECTS_MAX = 100_000
_EMPTY = Objection("empty_table", "the table has no rows, which is probably a mistake")


class LiveTable(Protocol):
    """The interface of the source: a `postgres.PostgresTable`, or a table in memory for tests."""

    @property
    def type(self) -> str: ...

    @property
    def estimate(self) -> int: ...

    def chunk(self, after: ChunkEnd | None, most: int) -> Chunk | None: ...

    def find(self, ids: Sequence[str]) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class TableSyncOptions:
    """The options of a sync.

    *chunk* is the number of rows that are read at a time. *rate* is a limit in rows per second, and
    0 means no limit. A change that is not posted within *grace_ms* of its commit counts as lost, so
    the sync corrects it.
    """

    compare: Compare
    grace_ms: int
    chunk: int
    rate: int = 0
    deletes: bool = True
    delete_share_max: float = dumps.DELETE_SHARE_MAX
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Time:
    """The clock of a sync.

    *now_ms* is the time since 1970, for timestamps. *passed_ms* is a monotonic time for intervals.
    """

    now_ms: Callable[[], int]
    passed_ms: Callable[[], int]
    sleep_ms: Callable[[int], None]


class Stopped(Exception):
    """A guard, which is a check of the table or of the deletions, stopped the sync."""

    def __init__(self, objection: Objection) -> None:
        self.objection = objection
        super().__init__(objection.sentence)


class BrokenRow(Exception):
    """A row of the state is incomplete, so it cannot be compared."""


@dataclass(slots=True)
class _Window:
    """The chunks that were read, beginning with the first chunk that still has suspects."""

    _chunks: deque[tuple[ChunkEnd, int, set[str]]] = field(default_factory=deque)
    _of: dict[str, set[str]] = field(default_factory=dict)

    def add(self, end: ChunkEnd, rows: int, suspects: set[str]) -> None:
        self._chunks.append((end, rows, suspects))
        self._of |= dict.fromkeys(suspects, suspects)

    def forget(self, key: str) -> None:
        self._of.pop(key).discard(key)

    def closed(self) -> Iterator[tuple[ChunkEnd, int]]:
        """Remove the chunks before the first one with suspects; yield place and rows of each."""
        while self._chunks and not self._chunks[0][2]:
            end, rows, _ = self._chunks.popleft()
            yield end, rows


class TableSync:
    """One run of a sync. *phases* shows its steps, and how many rows or objects are done."""

    def __init__(
        self,
        feed: Feed,
        table: LiveTable,
        options: TableSyncOptions,
        progress: Progress,
        time: Time,
        phases: Phases,
    ) -> None:
        self._feed, self._table, self._options, self._time = feed, table, options, time
        self._progress, self._state, self._phases = progress, progress.state, phases
        self._prefix = type_prefix(lower_case(table.type))
        self._corrector = feed.corrector()
        self._suspects, self._window = Suspects(options.grace_ms), _Window()
        self._free_ms: float = time.passed_ms()

    def run(self) -> None:
        """Run until the feed agrees with the table.

        With the option `dry_run`, run until the differences are known. If the run fails, `progress`
        has the work that was done.

        Raises:
            Stopped: a guard objects. The step `deletes` has deleted nothing.
            BadTable: see `PostgresTable`.
            BrokenRow: a row of the state is incomplete.
            TidingsError: the feed rejects a request, or does not respond.
        """
        steps = {ROWS: self._compare_rows}
        if self._options.deletes:
            steps |= {OBJECTS: self._compare_objects, DELETES: self._delete}
        names = list(steps)
        for step in names[names.index(self._state.step or ROWS) :]:
            if self._state.step != step:
                self._state.step, self._state.place = step, None
                self._progress.save()
            steps[step]()
        self._progress.clear()

    def _compare_rows(self) -> None:
        self._phases.begin("comparing rows", self._table.estimate or None)
        end = self._state.place
        self._phases.advance(self._state.rows)
        while (chunk := self._table.chunk(end, self._options.chunk)) is not None:
            end = chunk.end
            lines = {f"{self._prefix}{id}": line for id, line in chunk.rows.items()}
            self._look(list(lines), lines, end)
        self._settle_all()
        if not self._state.rows:
            raise Stopped(_EMPTY)

    def _compare_objects(self) -> None:
        self._phases.begin("comparing objects", self._state.rows)
        self._phases.advance(self._state.objects)
        bucket, after = self._state.place or (0, self._prefix)
        read = self._feed.rows()
        while bucket < limits.BUCKETS:
            page = read(self._feed.feed, bucket, after)
            ours = list(takewhile(lambda row: row.key.startswith(self._prefix), page))
            for some in _cut([row for row in ours if not _check(row).deleted], self._options.chunk):
                self._note_missing(bucket, [row.key for row in some])
            if page and len(ours) == len(page):
                after = page[-1].key
            else:
                bucket, after = bucket + 1, self._prefix

    def _note_missing(self, bucket: int, keys: list[str]) -> None:
        """Record the objects of *keys* that have no row.

        The keys were read from the state. This method reads the table afterwards.
        """
        found = self._find_differences(keys)
        missing = [key for key in keys if key not in found]
        state = self._state
        state.objects += len(keys)
        state.missing += len(missing)
        state.place = [bucket, keys[-1]]
        self._progress.save(missing)
        self._phases.advance(len(keys))
        self._throttle(len(keys))

    def _delete(self) -> None:
        self._phases.begin("deleting", self._state.missing)
        planned = Planned(self._state.missing, self._state.objects)
        objection = dumps.check_plan(planned, share_max=self._options.delete_share_max)
        if objection is not None:
            raise Stopped(objection)
        end = self._state.place or [""]
        while keys := self._progress.missing(end[0], self._options.chunk):
            end = [keys[-1]]
            self._look(keys, None, end)
        self._settle_all()

    def _look(self, keys: list[str], lines: dict[str, str] | None, end: ChunkEnd) -> None:
        """Compare the objects of a chunk for the first time.

        The chunk ends at *end*. *lines* has the rows of the chunk; if *lines* is None, read the
        rows here.
        """
        began_ms = self._time.passed_ms()
        _, stored = self._stored_rows(keys)
        found = self._find_differences(keys) if lines is None else lines
        ended_ms = self._time.passed_ms()
        for key in keys:
            self._suspects.see(
                key,
                self._difference(found.get(key), stored.get(key)),
                began_ms=began_ms,
                ended_ms=ended_ms,
            )
        suspects = {key for key in keys if key in self._suspects}
        self._window.add(end, len(keys) if lines is not None else 0, suspects)
        self._save()
        self._phases.advance(len(keys))
        self._throttle(len(keys))
        self._settle()

    def _settle_all(self) -> None:
        while self._suspects:
            self._wait_for_the_next()
            self._settle()

    def _settle(self) -> None:
        """Compare the due suspects again. If there are too many suspects, wait for some."""
        while True:
            if len(self._suspects) >= SUSPECTS_MAX:
                self._wait_for_the_next()
            due = self._suspects.due(self._time.passed_ms(), self._options.chunk)
            if not due:
                return
            self._look_again(due)

    def _wait_for_the_next(self) -> None:
        next_ms = self._suspects.next_ms()
        if next_ms is not None:
            self._time.sleep_ms(max(0, next_ms - self._time.passed_ms()))

    def _look_again(self, keys: list[str]) -> None:
        """Compare suspects again, and correct those with a lasting difference.

        The state is read before the table. If an operation of an object is appended after the state
        was read, the object has another position, and its correction is not applied.
        """
        began_ms = self._time.passed_ms()
        through, stored = self._stored_rows(keys)
        found = self._find_differences(keys)
        ended_ms = self._time.passed_ms()
        lasting: list[Difference] = []
        for key in keys:
            differs = self._difference(found.get(key), stored.get(key))
            verdict = self._suspects.see(key, differs, began_ms=began_ms, ended_ms=ended_ms)
            if verdict is not Verdict.WAITS:
                self._window.forget(key)
            self._state.settled += verdict is Verdict.SETTLED
            self._state.restless += verdict is Verdict.RESTLESS
            if verdict is Verdict.LASTS and differs is not None:
                lasting.append(differs)
        self._correct(lasting, through)
        self._save()
        self._throttle(len(keys))

    def _correct(self, lasting: Sequence[Difference], through: int) -> None:
        from tidings.sync.feed import NAMES, Applied, apply_lines  # help texts do not need boto3

        state, now_ms = self._state, self._time.now_ms()
        if lasting and not self._options.dry_run:
            lines = [corrections.encode(each.correction(now_ms)).encode() for each in lasting]
            total, feed = Applied(), self._feed.feed
            apply_lines(self._corrector, feed, lambda: lines, through, total, lambda count: None)
            state.applied += total.applied
            state.moved += total.moved
            state.done += total.done
        for each in lasting:
            name = NAMES[each.event]
            setattr(state, name, getattr(state, name) + 1)

    def _difference(self, line: str | None, row: Row | None) -> Difference | None:
        return difference(line, row, self._options.compare)

    def _stored_rows(self, keys: Sequence[str]) -> tuple[int, dict[str, Row]]:
        """Return the page up to which the state is complete, and the rows of *keys* by key."""
        rows: dict[str, Row] = {}
        pages: list[int] = []
        while keys:
            lookup = self._corrector.look(self._feed.feed, keys[: limits.LOOKUP_KEYS_MAX])
            rows |= {row.key: _check(row) for row in lookup.rows}
            pages.append(lookup.state)
            keys = keys[lookup.count :]
        return min(pages), rows

    def _find_differences(self, keys: Sequence[str]) -> dict[str, str]:
        start = len(self._prefix)
        found = self._table.find([key[start:] for key in keys])
        return {f"{self._prefix}{id}": line for id, line in found.items()}

    def _save(self) -> None:
        """Save the progress. A chunk is done if it and all earlier chunks have no suspects."""
        closed = list(self._window.closed())
        if closed:
            self._state.place = closed[-1][0]
            self._state.rows += sum(rows for _, rows in closed)
        self._progress.save()

    def _throttle(self, rows: int) -> None:
        """Sleep until *rows* rows have taken as long as the option `rate` requires.

        If the sync was slower than `rate` for some time, it does not catch up afterwards, so that
        there are no bursts.
        """
        if not self._options.rate:
            return
        now_ms = self._time.passed_ms()
        self._free_ms = max(self._free_ms, now_ms) + 1000 * rows / self._options.rate
        self._time.sleep_ms(ceil(self._free_ms - now_ms))


def _check(row: Row) -> Row:
    if not row.is_complete:
        raise BrokenRow(f"the row of {row.key} is broken; `tidings verify` reports the details")
    return row


def _cut(rows: list[Row], size: int) -> Iterator[list[Row]]:
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


STOPPED, LAGS = 3, 4
# The default and the maximum of `--chunk`: 1,000 rows take milliseconds, and 10,000 rows take
# seconds and 10 MB.
CHUNK, CHUNK_MAX = 1_000, 10_000
GRACE_S = 60.0  # a post from an outbox takes much less time; a longer grace delays the sync
_EPILOG = (
    f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard, {LAGS} all corrections are in the log, but"
    " the state does not advance."
)
_SHOWN = ("rows", "objects", "creates", "updates", "deletes", "settled", "restless")
_APPLIED = ("applied", "moved", "done")


@click.command("table", epilog=_EPILOG)
@click.argument("dsn")
@click.argument("table")
@named_feed_options
@click.option(
    "--type",
    "kind",
    default="",
    metavar="TYPE",
    help="Type of the objects.  [default: name of the table]",
)
@click.option("--key", default="", metavar="A,B", help="Columns of the id.  [default: primary key]")
@click.option(
    "--changed",
    default="",
    metavar="COLUMN",
    help="Column with the time of a row; objects with newer rows are updated.",
)
@click.option(
    "--parents", default="", metavar="COLUMN", help="Column with an array of the parents."
)
@click.option("--with-data", is_flag=True, help="Compare all columns as the data of the object.")
@click.option("--no-deletes", is_flag=True, help="Delete nothing.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=GRACE_S,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time between the commit of a change and its post, in either order.",
)
@click.option(
    "--chunk",
    type=click.IntRange(1, CHUNK_MAX),
    default=CHUNK,
    show_default=True,
    help="Rows per query.",
)
@click.option("--rate", type=click.IntRange(1), default=None, help="Maximum rows per second.")
@delete_share_option
@click.option(
    "--progress",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the progress in this file, and resume from it.",
)
@click.option("--dry-run", is_flag=True, help="Print the differences and change nothing.")
@lineage_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@click.pass_context
def table(ctx: click.Context, /, dsn: str, table: str, named: NamedFeed, **options: Any) -> None:
    """Correct a feed so that it agrees with TABLE of the PostgreSQL at DSN.

    Others may write to the feed and the table at the same time. Nothing is locked or exported: rows
    are read in chunks by the key. If a row differs from its object in the feed, both are read again
    after the grace. The object is corrected only if neither has changed. Missing objects are
    inserted, and objects without a row are deleted. Objects with a newer row are updated if
    --changed is given, and objects with other data if --with-data is given.

    \b
    Examples:
      tidings sync table postgresql:///app videos --type video --dry-run
      tidings sync table postgresql:///app videos --with-data --progress app.sync
    """
    if options["dry_run"] and options["progress"]:
        raise click.UsageError("--dry-run saves no progress; omit --progress")
    if find_spec("psycopg") is None:
        needs = "`tidings sync table` needs psycopg, which is not installed here"
        raise click.ClickException(f"{needs}; {how_to_install('flow')}")
    feed = open_feed(named)
    with _failures(), closing(_table(dsn, table, options)) as source:
        # The progress is valid only for a sync with this identity.
        where = named.url or named.stage or named.endpoint_url
        same = ("key", "changed", "parents", "with_data", "no_deletes")
        what = {"feed": named.feed, "where": where, "table": str(source), "type": source.type} | {
            name: options[name] for name in same
        }
        with closing(Progress(options["progress"] or IN_MEMORY, what)) as progress:
            dry_run = options["dry_run"]
            lineage = Lineage.of(named, source.dataset(), dry_run) if options["lineage"] else None
            with (
                _print_result(ctx, progress, options["as_json"]),
                report_sync(lineage, progress.counts),
            ):
                _run(feed, source, progress, options)


def _run(feed: Feed, source: PostgresTable, progress: Progress, options: dict[str, Any]) -> None:
    from tidings.sync.feed import wait_for_state  # as in `_correct`

    with Phases(silent=options["as_json"]) as phases:
        _make(feed, source, progress, options, phases).run()
        if progress.state.applied:
            phases.begin("waiting for the state")
            wait_for_state(feed.feed, feed.end(), feed.checkpoint)


@contextmanager
def _print_result(ctx: click.Context, progress: Progress, as_json: bool) -> Iterator[None]:
    """Print the result of a sync, also after a failure.

    Exit with `STOPPED` if a guard objects, and with `LAGS` if the state does not advance.
    """
    from tidings.sync.feed import NotFollowing  # as in `TableSync._correct`

    try:
        yield
    except Stopped as stopped:
        _show(progress.state, as_json, stopped=stopped.objection.code)
        click.echo(f"Stopped: {stopped.objection.sentence}.", err=True)
        ctx.exit(STOPPED)
    except NotFollowing as error:
        _show(progress.state, as_json, failed=str(error))
        click.echo(f"Error: all corrections are applied, but {error}", err=True)
        ctx.exit(LAGS)
    except BaseException as error:
        _show(progress.state, as_json, failed=str(error) or type(error).__name__)
        raise
    _show(progress.state, as_json)


def _make(
    feed: Feed, source: PostgresTable, progress: Progress, options: dict[str, Any], phases: Phases
) -> TableSync:

    wanted = TableSyncOptions(
        compare=_compare(options),
        grace_ms=round(1000 * options["grace"]),
        chunk=options["chunk"],
        rate=options["rate"] or 0,
        deletes=not options["no_deletes"],
        delete_share_max=options["max_delete_share"],
        dry_run=options["dry_run"],
    )
    passing = Time(now_ms, lambda: time.monotonic_ns() // 1_000_000, sleep_ms)
    return TableSync(feed, source, wanted, progress, passing, phases)


def _compare(options: dict[str, Any]) -> Compare:
    if options["changed"]:
        return Compare.TIME
    return Compare.CONTENT if options["with_data"] else Compare.PRESENCE


def _table(dsn: str, table: str, options: dict[str, Any]) -> PostgresTable:
    from tidings.sync.postgres import Mapping, PostgresTable

    key = tuple(name.strip() for name in options["key"].split(",") if name.strip())
    columns = options["changed"], options["parents"], options["with_data"]
    return PostgresTable(dsn, table, Mapping(options["kind"], key, *columns))


def _show(state: TableSyncState, as_json: bool, **ended: str) -> None:
    counts = {name: getattr(state, name) for name in (*_SHOWN, *_APPLIED)}
    if as_json:
        click.echo(json.dumps(counts | ended))
        return
    render.show(render.table(("", "count"), [{"": k, "count": n} for k, n in counts.items()]))


@contextmanager
def _failures() -> Iterator[None]:
    """Print an error of the table, the feed or the progress as one sentence, and exit with 1."""
    import psycopg

    from tidings.sync.postgres import BadTable

    try:
        with refusals():
            yield
    except psycopg.Error as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise click.ClickException(f"the database: {reason}") from None
    except (BadTable, BrokenRow, WrongProgress) as error:
        raise click.ClickException(str(error)) from None
