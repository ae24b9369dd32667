"""The table of a type: the `data` of its operations, in columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidings.lake import columns
from tidings.lake.columns import COLUMNS_MAX, FIXED, UNFIT, DataColumn, TypeColumns
from tidings.lake.tables import Table, quoted

# For each key the types of its values, the most frequent keys first; all objects are one type.
_SEEN = f"""
    SELECT key, collect_set(kind) AS kinds FROM (
        SELECT key, IF(startswith(schema_of_variant(value), 'OBJECT<'), 'OBJECT',
                       schema_of_variant(value)) AS kind
        FROM {{rows}}, LATERAL variant_explode(try_parse_json(data))
        WHERE key IS NOT NULL)
    GROUP BY key ORDER BY count(*) DESC, key LIMIT {COLUMNS_MAX}
"""


@dataclass(frozen=True, slots=True)
class TypeTable:
    table: Table
    wanted: TypeColumns

    def columns(self) -> list[DataColumn]:
        """Return the columns of data in the table; the comment of a column is its key."""
        return [
            DataColumn(
                each.name, each.metadata.get("comment", each.name), each.dataType.simpleString()
            )
            for each in self.table.rows().schema
            if each.name not in FIXED
        ]

    def declare(self) -> None:
        """
        Add columns that the table lacks.

        Raises:
            BadColumns: the table has a different column of that name.
        """
        self._add(columns.added(self.columns(), self.wanted.columns))

    def rows(self, news: DataFrame) -> DataFrame:
        """
        Return the rows of *news*, operations of the type, with the table's columns and their
        `event`.

        `data` is complete if a value does not fit its column or a key has no column, else null.
        """
        if self.wanted.infers:
            seen = news.sparkSession.sql(_SEEN, rows=news).collect()
            kinds = {each["key"]: set(each["kinds"]) for each in seen}
            self._add(columns.inferred(self.columns(), kinds))
        known = self.columns()
        read = F.from_json("data", _schema(known), {"columnNameOfCorruptRecord": UNFIT})
        parsed = news.withColumn("read", read)
        fits = _fits(known)
        return parsed.select(
            F.coalesce("id", F.lit("")).alias("id"),
            *(each for each in FIXED if each not in ("id", "data")),
            F.when(~F.coalesce(fits, F.lit(False)), F.col("data")).alias("data"),
            *(F.col("read").getField(each.key).alias(each.name) for each in known),
            "event",
        )

    def _add(self, new: Iterable[DataColumn]) -> None:
        declared = [f"`{each.name}` {each.kind} COMMENT {quoted(each.key)}" for each in new]
        if declared:
            session = self.table.session
            session.sql(f"ALTER TABLE {self.table.name} ADD COLUMNS ({', '.join(declared)})")


def _schema(known: Iterable[DataColumn]) -> str:
    fields = [f"`{each.key}` {each.kind}" for each in known]
    return ", ".join([*fields, f"`{UNFIT}` string"])


def _fits(known: list[DataColumn]) -> Column:
    """
    Return whether the columns represent the data completely; null if the data are not an object.
    """
    fits = F.col("read").getField(UNFIT).isNull()
    fits &= _keys_are(F.col("data"), [each.key for each in known])
    for each in known:
        if each.fields:
            inner = F.get_json_object("data", f"$['{each.key}']")
            fits &= inner.isNull() | _keys_are(inner, each.fields)
    return fits


def _keys_are(document: Column, keys: Iterable[str]) -> Column:
    known = F.array(*map(F.lit, keys)).cast("array<string>")
    return F.size(F.array_except(F.json_object_keys(document), known)) == 0
