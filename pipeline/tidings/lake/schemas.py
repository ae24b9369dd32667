"""The columns of what is read from parts; those of the tables are `OPERATIONS` of `sync`."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)
from tidings.sync.schemas import OPERATIONS as OPERATIONS

_TEXT, _TEXTS, _LONG = StringType(), ArrayType(StringType()), LongType()

# An entry as a part holds it; *part* is the number of the part in a run.
ENTRIES = StructType(
    [
        StructField("part", _LONG),
        StructField("page", _LONG),
        StructField("slot", IntegerType()),
        StructField("at_ms", _LONG),
        StructField("line", _TEXT),
    ]
)

# What a line says, but for its data.
HEAD = StructType(
    [
        StructField("event", _TEXT),
        StructField("timestamp", _TEXT),
        StructField("type", _TEXT),
        StructField("id", _TEXT),
        StructField("parents", _TEXTS),
        StructField("tags", _TEXTS),
        StructField("changed", _TEXTS),
    ]
)
