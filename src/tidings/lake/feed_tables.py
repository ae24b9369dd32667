"""The tables of a feed, and how a batch of its log is written to all of them.

The place of a table is the cursor up to which the table contains the log. The operations of a batch
are written to `history` first. If a run crashed between two commits, the next run brings the other
tables to the place of `history`, with the rows of `history`.

If Spark fails for the table of one type, that type is left out for the rest of the run. The table
of this type keeps its place, and the next run continues at this place. The other tables are still
written.

The table of a type has the `data` of its objects in columns. The keys of the data are arbitrary
texts. In Spark's plans, the values of the keys have numbered names (c0, c1, ...), because Spark
ignores the case of names, and divides names at dots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from tidings.core.model.cursors import START, Place
from tidings.core.model.operations import DIGITS_SURE
from tidings.lake import columns
from tidings.lake.columns import COLUMNS_MAX, FIXED, UNFIT, DataColumn, Schemas, TypeColumns
from tidings.lake.erasure import Named, TableEraser, pending
from tidings.lake.tables import (
    EVENT,
    SNAPSHOTS_MAX,
    Table,
    due,
    expire,
    of_feed,
    of_type,
    quote_literal,
    rewrite,
)
from tidings.lake.warehouse import (
    ERASED,
    HISTORY,
    LATEST,
    Raced,
    TableMetadata,
    Warehouse,
    kind_of,
    read_metadata,
    table_names,
)
from tidings.spark import latest as last_of_each
from tidings.sync.spark_session import SPARK_ERRORS, sentence_of

# A query for the keys, the most frequent first, with the types of their values. All JSON objects
# count as one type.
_SEEN = f"""
    SELECT key, collect_set(kind) AS kinds FROM (
        SELECT key, IF(startswith(schema_of_variant(value), 'OBJECT<'), 'OBJECT',
                       schema_of_variant(value)) AS kind
        FROM {{rows}}, LATERAL variant_explode(try_parse_json(data))
        WHERE key IS NOT NULL)
    GROUP BY key ORDER BY count(*) DESC, key LIMIT {COLUMNS_MAX}
"""
# Names of columns that earlier releases created. Iceberg rejects a table with such a column.
_REFUSED = ("_file", "_pos", "_spec_id", "_partition", "_row_id")
_TEXT = StringType()
_NORMAL_MIN, _DOUBLE_MAX = 2.2250738585072014e-308, 1.7976931348623157e308
# A number with a fraction or an exponent; see `_fractions`.
_FRACTION = r"-?\d++(?:\.\d++(?:[eE][-+]?\d++)?+|[eE][-+]?\d++)"
# For two types of columns, a pattern of the texts that such a column stores without loss. Spark
# would also accept other texts: it would cut the time off a date, cut nanoseconds off a time, and
# parse a number as a timestamp.
_INTEGER = {
    "timestamp": r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?(Z|[+-]\d\d:?\d\d)?)?$",
    "date": r"^\d{4}-\d\d-\d\d$",
}
# The first and the last value of two types. PyIceberg, Arrow and Polars cannot read others.
_RANGES = {
    "timestamp": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
    "date": ("0001-01-01", "9999-12-31"),
}


@dataclass(frozen=True, slots=True)
class TypeTable:
    table: Table
    wanted: TypeColumns

    def columns(self) -> list[DataColumn]:
        """Return the columns of the table for `data`. The comment of a column is its key."""
        return [column for column, _ in self._known_columns()]

    def declare(self) -> None:
        """Add declared columns that the table lacks, and rename columns that Iceberg rejects.

        Raises:
            BadColumns: the table has a different column with the name of a declared column.
        """
        for each in self.columns():
            if each.name in _REFUSED:
                self._alter(f"RENAME COLUMN `{each.name}` TO `data_{each.name}`")
        self._add(columns.missing_columns(self.columns(), self.wanted.columns))

    def rows(self, changes: DataFrame) -> DataFrame:
        """Convert *changes*, operations of the type, to rows with the table's columns and `EVENT`.

        The column `data` has all data of an object if a value does not fit its column, or if a key
        has no column. Otherwise the column is null.
        """
        if self.wanted.infers:
            seen = changes.sparkSession.sql(_SEEN, rows=changes).collect()
            kinds = {each["key"]: set(each["kinds"]) for each in seen}
            self._add(columns.infer_columns(self.columns(), kinds))
        known = self._known_columns()
        keys = [each.key for each, _ in known]
        unfit = {"columnNameOfCorruptRecord": UNFIT}
        kinds_of = [*(kind for _, kind in known), _TEXT]
        parsed = changes.select(
            "*",
            _by_number("data", [*keys, UNFIT], kinds_of, unfit).alias("_values"),
            _by_number("data", keys, [_TEXT] * len(keys)).alias("_texts"),
        )
        values = [F.col("_values").getField(f"c{at}") for at in range(len(known) + 1)]
        texts = [F.col("_texts").getField(f"c{at}") for at in range(len(known))]
        fits = values[-1].isNull() & _keys_are(F.col("data"), keys)
        fits &= F.forall(
            _fractions(F.col("data")), lambda each: _is_exact(each, each.try_cast("double"))
        )
        for (column, _), text, value in zip(known, texts, values, strict=False):
            check = _check(column.kind)
            if check is not None:
                fits &= text.isNull() | check(text, value)
        return parsed.select(
            F.coalesce("id", F.lit("")).alias("id"),
            *(each for each in FIXED if each not in ("id", "data")),
            F.when(~F.coalesce(fits, F.lit(False)), F.col("data")).alias("data"),
            *(
                _finite(column.kind, value).alias(column.name)
                for (column, _), value in zip(known, values, strict=False)
            ),
            F.col("event").alias(EVENT),
        )

    def _known_columns(self) -> list[tuple[DataColumn, DataType]]:
        return [
            (
                DataColumn(
                    each.name, each.metadata.get("comment", each.name), each.dataType.simpleString()
                ),
                each.dataType,
            )
            for each in self.table.rows().schema
            if each.name not in FIXED
        ]

    def _add(self, new: Iterable[DataColumn]) -> None:
        declared = [f"`{each.name}` {each.kind} COMMENT {quote_literal(each.key)}" for each in new]
        if declared:
            self._alter(f"ADD COLUMNS ({', '.join(declared)})")

    def _alter(self, change: str) -> None:
        self.table.session.sql(f"ALTER TABLE {self.table.name} {change}")


def _by_number(
    document: Column | str,
    keys: Sequence[str],
    kinds: Sequence[DataType],
    options: dict[str, str] | None = None,
) -> Column:
    """Return the values of *keys* in a JSON *document* as a struct with fields c0, c1 and so on."""
    if not keys:
        return F.lit(None)
    fields = list(map(StructField, keys, kinds))
    numbered = [StructField(f"c{at}", kind) for at, kind in enumerate(kinds)]
    return F.from_json(document, StructType(fields), options).cast(StructType(numbered))


def _keys_are(document: Column, keys: Iterable[str]) -> Column:
    """Return a column that is true if the JSON *document* has only *keys*, each at most once.

    The column is null if the document is not a JSON object.
    """
    known = F.array(*map(F.lit, keys)).cast("array<string>")
    found = F.json_object_keys(document)
    once = F.size(found) == F.size(F.array_distinct(found))
    return once & (F.size(F.array_except(found, known)) == 0)


def _check(kind: str) -> Callable[[Column, Column], Column] | None:
    """Return a function that compares a value in JSON with the value of its column.

    The column has the type *kind*. The function takes the JSON text and the column's value, and
    returns true if the column's value represents the text completely. If a column of type *kind*
    always represents the text completely, return None instead of a function.
    """
    if kind == "double":
        return _is_exact
    if kind in _INTEGER:
        fits = partial(_finite, kind)
        return lambda text, value: text.rlike(_INTEGER[kind]) & fits(value).isNotNull()
    if kind.startswith("struct<"):
        return partial(_struct_fits, kind)
    check = _check(kind[len("array<") : -1]) if kind.startswith("array<") else None
    return None if check is None else partial(_array_fits, check)


def _array_fits(check: Callable[[Column, Column], Column], text: Column, value: Column) -> Column:
    texts = F.from_json(text, ArrayType(_TEXT))
    each = F.zip_with(texts, value, lambda text, value: text.isNull() | check(text, value))
    return F.coalesce(F.forall(each, lambda fits: F.coalesce(fits, F.lit(False))), F.lit(False))


def _struct_fits(kind: str, text: Column, value: Column) -> Column:
    column = DataColumn("", "", kind)
    fits = _keys_are(text, column.fields)
    texts = _by_number(text, column.fields, [_TEXT] * len(column.fields))
    for at, (name, inner) in enumerate(zip(column.fields, column.kinds, strict=True)):
        check = _check(inner)
        if check is not None:
            part = texts.getField(f"c{at}")
            fits &= part.isNull() | check(part, value.getField(name))
    return fits


def _is_exact(text: Column, value: Column) -> Column:
    """Return a column that is true if the double *value* has all digits of the number *text*."""
    digits = _digits(text)
    is_normal = F.abs(value).between(_NORMAL_MIN, _DOUBLE_MAX)
    is_short = (F.length(digits) <= DIGITS_SURE) & is_normal
    return text.rlike(r"^-?\d") & (is_short | (digits == _digits(value.cast("string"))))


def _fractions(document: Column) -> Column:
    """Return the numbers in a JSON document that have a fraction or an exponent, as written.

    Spark's parser rounds such numbers to doubles, even within a value that it returns as text. So
    they are extracted from the document without this parser.
    """
    plain = F.replace(F.replace(document, F.lit("\\\\"), F.lit("")), F.lit('\\"'), F.lit(""))
    return F.regexp_extract_all(
        F.regexp_replace(plain, '"[^"]*+"', '""'), F.lit(_FRACTION), F.lit(0)
    )


def _digits(number: Column) -> Column:
    """Return the significant digits of a number."""
    plain = F.regexp_replace(number, r"[eE].*|[-+.]", "")
    return F.regexp_replace(plain, r"^0+|0+$", "")


def _finite(kind: str, value: Column) -> Column:
    """Return *value* of a column of type *kind*, null if readers cannot represent it.

    These are numbers too large for a double, and times outside the years 1 to 9999.
    """
    if kind == "double":
        return F.when(F.abs(value) <= _DOUBLE_MAX, value)
    if kind in _RANGES:
        return F.when(value.between(*(F.lit(each).cast(kind) for each in _RANGES[kind])), value)
    if kind.startswith("array<"):
        return F.transform(value, partial(_finite, kind[len("array<") : -1]))
    if kind.startswith("struct<"):
        column = DataColumn("", "", kind)
        parts = zip(column.fields, column.kinds, strict=True)
        finite = [_finite(inner, value.getField(name)).alias(name) for name, inner in parts]
        return F.when(value.isNotNull(), F.struct(*finite))
    return value


@dataclass
class FeedTables:
    """The tables of one feed.

    *schemas* has the schema of each type that has a table. *begin* is called with the name of each
    table or phase before work on it begins. After `catch_up`, *place* is the common place of all
    tables. *written* has, by table, the number of rows that this run added. *failed* has, by type,
    the reason why the type is left out.
    """

    session: SparkSession
    warehouse: Warehouse
    feed: str
    schemas: Schemas
    begin: Callable[[str], None]

    def __post_init__(self) -> None:
        self.place, self.written, self.failed = START, Counter[str](), dict[str, str]()
        self._seen = dict[str, int]()  # the last known snapshot of each table
        where = self.session, self.warehouse, self.feed
        self.history = of_feed(*where, HISTORY)
        self.latest = of_feed(*where, LATEST)
        self.types = {
            name: TypeTable(of_type(*where, name), wanted) for name, wanted in self.schemas.items()
        }

    def all(self) -> Iterator[Table]:
        yield from (self.history, self.latest)
        yield from (each.table for each in self.types.values())

    def create(self) -> None:
        """Create missing tables and columns.

        Raises:
            BadColumns: a table has a different column with the name of a declared column.
        """
        self.history.create()
        self.latest.create()
        for name, each in list(self.types.items()):
            with self._apart(name):
                each.table.create()
                each.declare()

    def catch_up(self) -> bool:
        """Bring every table to the place of `history`; return True if `history` has a place.

        Then erase the objects of erasure entries that are not done.
        """
        self.look()
        place = self.history.through()
        if place is None:
            return False
        self.place = place
        at = self.latest.through()
        if at is None or at.page < place.page:
            changes = self.history.rows() if at is None else self.history.after(at)
            rows = _with_keys(last_of_each(changes))
            self._commit(self.latest, partial(self.latest.merge, rows, place))
        for name, each in list(self.types.items()):
            with self._apart(name):
                at = each.table.through()
                if at is None or at.page < place.page:
                    rows = self._objects() if at is None else last_of_each(self.history.after(at))
                    self._merge_type(name, rows, place)
        self._erase(place)
        return True

    def begin_with(self, state: DataFrame, place: Place) -> None:
        """Replace the rows of `latest` and of the tables of types with *state*, as of *place*.

        `history` keeps its rows and only gets the new place. The new place is committed last, so
        that the next run repeats the replacement after a crash.
        """
        self._commit(self.latest, partial(self.latest.replace, state, place))
        for name, each in list(self.types.items()):
            with self._apart(name):
                rows = each.rows(state.where(F.col("type") == name)).drop(F.col(f"`{EVENT}`"))
                self._commit(each.table, partial(each.table.replace, rows, place))
        self._append(self.history.rows().limit(0), self.place, place)
        self.place = place

    def take(self, batch: DataFrame, through: Place, erasures: int = 0) -> dict[str, int]:
        """Write the operations of *batch*, which ends at *through*, to all tables.

        Skip operations that the tables already contain. *erasures* is the page of the first erasure
        entry in the batch, or 0; the objects are then erased from the tables. Return, for each type
        in the batch that has a table, the number of rows with data that do not fit the columns.

        Raises:
            Raced: another run writes these tables.
        """
        if through.page <= self.place.page:
            return {}
        rows = batch.where(F.col("page") > self.place.page)
        self.begin(HISTORY)
        self._append(rows, self.place, through, erasures)
        self.begin(LATEST)
        changes = last_of_each(rows)
        self._commit(self.latest, partial(self.latest.merge, _with_keys(changes), through))
        misfits = {}
        for name in self._came(changes):
            with self._apart(name):
                misfits[name] = self._merge_type(name, changes, through)
        if erasures:
            self._erase(through)
        self.place = through
        return misfits

    def _erase(self, through: Place) -> None:
        """Erase the objects of the erasure entries that are not done from all tables of the feed.

        The tables are at *through*.

        If Spark fails for the table of a type, the entries stay in `history`, and the next run
        erases the objects again.
        """
        found = self.history.metadata()
        if found is None or not found.erasures:
            return
        self.begin("erasing")
        named = pending(self.history, found.erasures)
        types = {each.called: each for each in self._tables_of_types()}
        types |= {each.table.called: each.table for each in self.types.values()}
        # If a run crashed after it had erased the entries in `history`, all other tables are done.
        others = [self.latest, *types.values()] if named else []
        if all([self._erase_from(table, named, through) for table in others]):
            TableEraser(self.history, named, through).run()
            self.history.set_property(ERASED, str(through.page))
        self.look()

    def _erase_from(self, table: Table, named: Sequence[Named], through: Place) -> bool:
        """Erase from *table*; return False if Spark fails for the table of a type."""
        try:
            TableEraser(table, named, through).run()
        except SPARK_ERRORS as error:
            if table.type is None:
                raise
            self.failed[table.type] = sentence_of(error)
            self.types.pop(table.type, None)
            return False
        return True

    def _tables_of_types(self) -> Iterator[Table]:
        """Yield the tables of all types, also of types that have no schema any more."""
        for name in table_names(self.warehouse):
            if kind_of(self.feed, name) in (None, HISTORY, LATEST):
                continue
            found = read_metadata(self.warehouse, name)
            if found is not None and found.type is not None and found.snapshot:
                yield of_type(self.session, self.warehouse, self.feed, found.type)

    @contextmanager
    def _apart(self, name: str) -> Iterator[None]:
        """Leave out the type *name* for the rest of the run if Spark fails in this context."""
        try:
            yield
        except SPARK_ERRORS as error:
            self.failed[name] = sentence_of(error)
            del self.types[name]

    def _came(self, changes: DataFrame) -> list[str]:
        """Return types in *changes* with a table. Tables of other types keep their place."""
        if not self.types:
            return []
        of_types = changes.where(F.col("type").isin(*self.types))
        return [row["type"] for row in of_types.select("type").distinct().collect()]

    def _objects(self) -> DataFrame:
        return self.latest.rows().where("event <> 'delete'")

    def _append(self, rows: DataFrame, after: Place, through: Place, erasures: int = 0) -> None:
        history, seen = self.history, self._seen[self.history.called]
        found = history.metadata()
        if found is not None and found.erasures:
            erasures = found.erasures  # an earlier entry is not done either
        work = partial(history.append, _with_place(rows), after, through, seen, erasures)
        self._commit(history, work)

    def _merge_type(self, name: str, changes: DataFrame, through: Place) -> int:
        """Merge *changes* into the table of a type; return the number of rows that keep `data`."""
        each = self.types[name]
        self.begin(name)
        rows = each.rows(changes.where(F.col("type") == name)).persist()
        try:
            misfits = rows.where("data IS NOT NULL").count()
            self._commit(each.table, partial(each.table.merge, rows, through))
        finally:
            rows.unpersist()
        return misfits

    def maintain(self) -> None:
        """Compact the small files and expire the old snapshots of all tables, if necessary.

        Do nothing if an erasure is not done, because a snapshot of `history` records that.
        """
        history = self.history.metadata()
        if history is not None and history.erasures:
            return
        for table in self.all():
            found = table.metadata()
            if found is None or not found.snapshot:
                continue
            if due(found):
                self.begin("compacting files")
                rewrite(table)
            if found.snapshots > SNAPSHOTS_MAX:
                expire(table)
        self.look()

    def look(self) -> None:
        for table in self.all():
            self._look_at(table)

    def _look_at(self, table: Table) -> TableMetadata:
        found = table.metadata() or TableMetadata()
        self._seen[table.called] = found.snapshot
        return found

    def _commit(self, table: Table, work: Callable[[], None]) -> None:
        found, seen = table.metadata(), self._seen[table.called]
        if found is not None and found.snapshot != seen:
            raise Raced(f"another run wrote {table.name} in the meantime; run again")
        work()
        made = self._look_at(table)
        if made.snapshot != seen:
            self.written[table.called] += made.added


def _with_place(rows: DataFrame) -> DataFrame:
    return _with_keys(rows).withColumns(
        {name: F.coalesce(name, F.lit(0)) for name in ("page", "slot")}
    )


def _with_keys(rows: DataFrame) -> DataFrame:
    """Return *rows* with "" for null in the type and the id, which must not be null."""
    return rows.withColumns({name: F.coalesce(name, F.lit("")) for name in ("type", "id")})
