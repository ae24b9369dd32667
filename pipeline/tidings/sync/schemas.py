"""The columns of every table a job passes on, so that nothing is ever inferred."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TEXT, _TEXTS, _LONG = StringType(), ArrayType(StringType()), LongType()

# Where a line of the dump stands: its file, the split of it, and a number that grows in the split.
_PLACE = [
    StructField("path", _TEXT),
    StructField("block", _LONG),
    StructField("number", _LONG),
]

# A line; *key* is null where only the core's own function can say what it means.
LINES = StructType(
    [
        *_PLACE,
        StructField("text", BinaryType()),
        StructField("key", _TEXT),
        StructField("moment", _TEXT),
    ]
)

# What the core said of a line. All null: the line is blank.
READ = StructType(
    [
        StructField("key", _TEXT),
        StructField("moment", _TEXT),
        StructField("end", _LONG),
        StructField("error", _TEXT),
    ]
)

# A line of a table's export, as far as a row of the state needs it. Numbers travel as text.
EXPORT = StructType(
    [
        StructField(
            "Item",
            StructType(
                [
                    StructField(name, StructType([StructField(kind, _TEXT)]))
                    for name, kind in [
                        ("bucket", "S"),
                        ("key", "S"),
                        ("page", "N"),
                        ("slot", "N"),
                        ("at", "N"),
                        ("line", "S"),
                    ]
                ]
            ),
        )
    ]
)

# What an export says of each of its files.
EXPORT_FILES = StructType([StructField("itemCount", _LONG), StructField("dataFileS3Key", _TEXT)])

# A row of the state; *at* is its position as corrections spell it, *committed* the time of its
# page in milliseconds.
ROWS = StructType(
    [
        StructField("key", _TEXT),
        StructField("at", _TEXT),
        StructField("committed", _LONG),
        StructField("deleted", BooleanType()),
        StructField("moment", _TEXT),
        StructField("line", _TEXT),
    ]
)

# An operation of the log, as users read it: from a feed, and in the tables of an archive.
OPERATIONS = StructType(
    [
        StructField("cursor", _TEXT),
        StructField("page", _LONG),
        StructField("slot", IntegerType()),
        StructField("at", TimestampType()),
        StructField("event", _TEXT),
        StructField("type", _TEXT),
        StructField("id", _TEXT),
        StructField("parents", _TEXTS),
        StructField("timestamp", TimestampType()),
        StructField("tags", _TEXTS),
        StructField("changed", _TEXTS),
        StructField("data", _TEXT),
        StructField("line", _TEXT),
    ]
)
