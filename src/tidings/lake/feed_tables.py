"""
The tables of a feed, and how a batch of its log goes into all of them.

`history` gets its operations first. What the other tables hold follows from it: where a run died
between two commits, the next one brings them to the place of `history` from what that holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tidings.core.model.cursors import START, Place
from tidings.lake import tables
from tidings.lake.columns import Schemas
from tidings.lake.errors import Raced
from tidings.lake.metadata import TableMetadata
from tidings.lake.tables import Table
from tidings.lake.typed import TypeTable
from tidings.lake.warehouse import HISTORY, LATEST, Warehouse
from tidings.spark import latest as last_of_each


@dataclass
class FeedTables:
    """
    *schemas* are of the types that have a table; *begin* is told which table is written next.

    *place* is where all tables are together, once `catch_up` is done. *written* counts the rows
    that this run committed, by table.
    """

    session: SparkSession
    warehouse: Warehouse
    feed: str
    schemas: Schemas
    begin: Callable[[str], None]
    place: Place = START
    written: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, int] = field(default_factory=dict)  # the snapshot that each table stands at

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
        Those that are missing, and the columns that are.

        Raises:
            BadColumns: a table has a column otherwise.
        """
        for table in self.all():
            table.create()
        for each in self.types.values():
            each.declare()

    def catch_up(self) -> bool:
        """Bring every table to where `history` is; whether anything is there."""
        self.look()
        place = self.history.through()
        if place is None:
            return False
        self.place = place
        self._latest_up_to(place)
        for name, each in self.types.items():
            at = each.table.through()
            if at is None or at.page < place.page:
                rows = self._objects() if at is None else last_of_each(self.history.behind(at))
                self._merge_type(name, rows, place)
        return True

    def begin_with(self, state: DataFrame, place: Place) -> None:
        """
        All that the tables have is what the *state* says, and operations behind *place* follow.

        `history` keeps what it has. It goes last: whoever dies before begins again.
        """
        self._commit(self.latest, partial(self.latest.replace, state, place))
        for name, each in self.types.items():
            rows = each.rows(state.where(F.col("type") == name)).drop("event")
            self._commit(each.table, partial(each.table.replace, rows, place))
        self._append(self.history.rows().limit(0), self.place, place)
        self.place = place

    def take(self, batch: DataFrame, through: Place) -> dict[str, int]:
        """
        The operations of *batch*, which ends at *through*, into all tables; of the objects of each
        type that has a table and came, how many kept `data`. What the tables have is passed over.

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
        left = {name: self._merge_type(name, news, through) for name in self._came(news)}
        self.place = through
        return left

    def _came(self, news: DataFrame) -> list[str]:
        """The types among *news* that have a table; the others are where they were."""
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
        """How many of the rows kept `data`."""
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
        Raises:
            Raced: the table is not as this run left it.
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
    """The fields that identify a row are not null for Spark, either: no operation lacks them."""
    return rows.withColumns({name: F.coalesce(name, F.lit("")) for name in ("type", "id")})
