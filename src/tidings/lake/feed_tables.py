"""
The tables of a feed, and how a batch of its log is written to all of them.

`history` receives its operations first, and the other tables are derived from it. If a run crashed
between two commits, the next run brings the others to the place of `history`, from its rows.

If Spark fails for the table of one type, that type is left out for the rest of the run: its table
keeps its place, the next run continues there, and the other tables are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidings.core.model.cursors import START, Place
from tidings.lake import tables
from tidings.lake.columns import Schemas
from tidings.lake.errors import Raced
from tidings.lake.metadata import TableMetadata
from tidings.lake.tables import EVENT, Table
from tidings.lake.typed import TypeTable
from tidings.lake.warehouse import HISTORY, LATEST, Warehouse
from tidings.spark import latest as last_of_each
from tidings.sync.engines.spark_session import SPARK_ERRORS, sentence_of


@dataclass
class FeedTables:
    """
    The tables of one feed.

    *schemas* are those of the types with a table. *begin* is called with the name of the table that
    is written next. *place* is the common place of all tables after `catch_up`. *written* counts
    the rows that this run committed, by table. *failed* says why a type was left out.
    """

    session: SparkSession
    warehouse: Warehouse
    feed: str
    schemas: Schemas
    begin: Callable[[str], None]
    place: Place = START
    written: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)  # the last seen snapshot of each table

    def __post_init__(self) -> None:
        where = self.session, self.warehouse, self.feed
        self.history = tables.of_feed(*where, HISTORY)
        self.latest = tables.of_feed(*where, LATEST)
        self.types = {
            name: TypeTable(tables.of_type(*where, name), wanted)
            for name, wanted in self.schemas.items()
        }

    def all(self) -> Iterator[Table]:
        yield from (self.history, self.latest)
        yield from (each.table for each in self.types.values())

    def create(self) -> None:
        """
        Create missing tables and columns.

        Raises:
            BadColumns: a table has a different column of that name.
        """
        self.history.create()
        self.latest.create()
        for name, each in list(self.types.items()):
            with self._apart(name):
                each.table.create()
                each.declare()

    def catch_up(self) -> bool:
        """Bring every table to the place of `history`; return True if it has any rows."""
        self.look()
        place = self.history.through()
        if place is None:
            return False
        self.place = place
        self._latest_up_to(place)
        for name, each in list(self.types.items()):
            with self._apart(name):
                at = each.table.through()
                if at is None or at.page < place.page:
                    rows = self._objects() if at is None else last_of_each(self.history.behind(at))
                    self._merge_type(name, rows, place)
        return True

    def begin_with(self, state: DataFrame, place: Place) -> None:
        """
        Replace the rows of all tables with *state*; operations after *place* follow.

        `history` keeps its rows. It is committed last, so that after a crash the next run starts
        over.
        """
        self._commit(self.latest, partial(self.latest.replace, state, place))
        for name, each in list(self.types.items()):
            with self._apart(name):
                rows = each.rows(state.where(F.col("type") == name)).drop(F.col(f"`{EVENT}`"))
                self._commit(each.table, partial(each.table.replace, rows, place))
        self._append(self.history.rows().limit(0), self.place, place)
        self.place = place

    def take(self, batch: DataFrame, through: Place) -> dict[str, int]:
        """
        Write the operations of *batch*, which ends at *through*, to all tables.

        Return for each type with a table in the batch the number of objects that kept `data`.
        Operations that the tables have are skipped.

        Raises:
            Raced: another run writes these tables.
        """
        if through.page <= self.place.page:
            return {}
        rows = batch.where(F.col("page") > self.place.page)
        self.begin(HISTORY)
        self._append(rows, self.place, through)
        self.begin(LATEST)
        news = last_of_each(rows)
        self._commit(self.latest, partial(self.latest.merge, _keyed(news), through))
        left = {}
        for name in self._came(news):
            with self._apart(name):
                left[name] = self._merge_type(name, news, through)
        self.place = through
        return left

    @contextmanager
    def _apart(self, name: str) -> Iterator[None]:
        """Leave out the type *name* for the rest of the run if Spark fails in this context."""
        try:
            yield
        except SPARK_ERRORS as error:
            self.failed[name] = sentence_of(error)
            del self.types[name]

    def _came(self, news: DataFrame) -> list[str]:
        """Return the types in *news* that have a table; other tables remain at their place."""
        if not self.types:
            return []
        of_types = news.where(F.col("type").isin(*self.types))
        return [row["type"] for row in of_types.select("type").distinct().collect()]

    def _latest_up_to(self, place: Place) -> None:
        at = self.latest.through()
        if at is None or at.page < place.page:
            news = self.history.rows() if at is None else self.history.behind(at)
            rows = _keyed(last_of_each(news))
            self._commit(self.latest, partial(self.latest.merge, rows, place))

    def _objects(self) -> DataFrame:
        return self.latest.rows().where("event <> 'delete'")

    def _append(self, rows: DataFrame, after: Place, through: Place) -> None:
        history, seen = self.history, self._seen[self.history.called]
        self._commit(history, partial(history.append, _placed(rows), after, through, seen))

    def _merge_type(self, name: str, news: DataFrame, through: Place) -> int:
        """Merge *news* into the table of a type; return the number of rows that kept `data`."""
        each = self.types[name]
        self.begin(name)
        rows = each.rows(news.where(F.col("type") == name)).persist()
        try:
            left = rows.where("data IS NOT NULL").count()
            self._commit(each.table, partial(each.table.merge, rows, through))
        finally:
            rows.unpersist()
        return left

    def look(self) -> None:
        for table in self.all():
            self._look_at(table)

    def _look_at(self, table: Table) -> TableMetadata:
        found = table.metadata() or TableMetadata()
        self._seen[table.called] = found.snapshot
        return found

    def _commit(self, table: Table, work: Callable[[], None]) -> None:
        """
        Run *work*, which commits to *table*.

        Raises:
            Raced: another run has changed the table.
        """
        found, seen = table.metadata(), self._seen[table.called]
        if found is not None and found.snapshot != seen:
            raise Raced(f"another run wrote {table.name} meanwhile; run again")
        work()
        made = self._look_at(table)
        if made.snapshot != seen:
            self.written[table.called] += made.added


def _placed(rows: DataFrame) -> DataFrame:
    return _keyed(rows).withColumns({name: F.coalesce(name, F.lit(0)) for name in ("page", "slot")})


def _keyed(rows: DataFrame) -> DataFrame:
    """Return *rows* without nulls in the identifying fields, which Spark requires."""
    return rows.withColumns({name: F.coalesce(name, F.lit("")) for name in ("type", "id")})
