"""The columns of all tables in a job, so that no schema is inferred."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TEXT, TEXTS = StringType(), ArrayType(StringType())
LONG, INT, BOOL = LongType(), IntegerType(), BooleanType()


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


# A line of a dump, unchanged, with its place: each split of a file is a *block*, in which *number*
# increases.
LINES = columns(path=TEXT, block=LONG, number=LONG, value=TEXT, text=BinaryType())

# The core's result for a line. All null: the line is blank.
READ = columns(key=TEXT, moment=TEXT, end=LONG, error=TEXT)

# The attributes of a table's export that a row of the state needs. Numbers are text.
_ATTRIBUTES = {"bucket": "S", "key": "S", "page": "N", "slot": "N", "at": "N", "line": "S"}
EXPORT = columns(
    Item=columns(**{name: columns(**{kind: TEXT}) for name, kind in _ATTRIBUTES.items()})
)

# The manifest entry of a file of an export.
EXPORT_FILES = columns(itemCount=LONG, dataFileS3Key=TEXT)

# A row of the state; *at* is its position in the format of corrections, *committed* the time of its
# page in milliseconds.
ROWS = columns(key=TEXT, at=TEXT, committed=LONG, deleted=BOOL, moment=TEXT, line=TEXT)

# An operation of the log, as users read it: from a feed, and in the tables of an archive.
OPERATIONS = columns(
    cursor=TEXT,
    page=LONG,
    slot=INT,
    at=TimestampType(),
    event=TEXT,
    type=TEXT,
    id=TEXT,
    parents=TEXTS,
    timestamp=TimestampType(),
    tags=TEXTS,
    changed=TEXTS,
    data=TEXT,
    line=TEXT,
)
