"""Read the dump as a table, and report its bad lines by file, number and reason.

A line is ordinary if its names need no escapes and its time is in UTC. Nearly all lines are
ordinary, and Spark parses them with patterns, without Python. The core's function `read_line` reads
all lines that are not ordinary, valid or not. So the rules for valid lines exist only once.

There are two patterns. The general pattern (`_ANY`) matches the four required keys in any order,
with any characters. In most dumps, however, every line has its keys in the same order, with ASCII
characters and a lower-case type. The ordered pattern is built for the order of the first line. It
parses a line with its tags and data in one pass, in a third of the time. Neither pattern matches a
line that the core would read differently.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.core.sync.dumps import RENAMED, Described, End, Objection, read_line
from tidings.sync import files
from tidings.sync.engine import CUT, GZIP, READ
from tidings.sync.spark_session import current

_SPACE = r"[\t\r ]*+"
# A character that needs no escape. U+FFFD is excluded, because it may replace bytes that are not
# UTF-8.
_LETTER = r'[^"\\\x00-\x1f\x7f\x{fffd}]'
_ASCII = r"[ !#-\[\]-~]"  # the ASCII characters of `_LETTER`, which a pattern compares fast
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
)
_SECOND = rf"(?!0000)\d{{4}}-{_DAY}T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_FRACTION = r"(?:\.\d{1,12})?"
_TYPE = r"[A-Za-z0-9_.:+ -]{1,128}+"
# The patterns limit the number of characters. A character has up to four bytes, so the limits are
# low enough for the core's limits in bytes.
_NAMES = rf'(?:{_SPACE}"{_LETTER}{{1,160}}+"{_SPACE}(?:,(?={_SPACE}")|(?=\]))){{0,64}}+{_SPACE}'
_VALUES = {
    "type": f'"{_TYPE}"',
    "id": rf'"{_LETTER}{{1,128}}+"',
    "timestamp": f'"{_SECOND}{_FRACTION}Z"',
    "parents": rf"\[{_NAMES}\]",
}
_ENTRY = "|".join(rf'"{name}"{_SPACE}:{_SPACE}{value}{_SPACE}' for name, value in _VALUES.items())
_ANY = rf'\A{_SPACE}\{{(?:{_SPACE}(?:{_ENTRY})(?:,(?={_SPACE}")|(?=\}}))){{4}}+\}}{_SPACE}\z'


def _names_up_to(count: int) -> str:
    name = f'"{_ASCII}{{1,160}}+"'
    return rf"\[(?:{name}(?:, ?+{name}){{0,{count - 1}}}+)?+\]"


_KEY_FIELDS = ("type", "id", "timestamp")  # the fields that become the key and the moment
_ORDERED = {
    "type": r'"([a-z0-9_.:+ -]{1,128}+)"',  # only lower case, as in a key; _ANY allows upper case
    "id": f'"({_ASCII}{{1,128}}+)"',
    # The captured group has the time to the millisecond, without trailing zeros.
    "timestamp": rf'"({_SECOND}(?={_FRACTION}Z)(?:\.\d{{0,2}}[1-9])?)[.\d]*+Z"',
    "parents": _names_up_to(limits.PARENTS_MAX),
}
_DATA_DEPTH = 4  # maximum nesting of objects and arrays; the core reads lines with deeper data
_PLAIN_NUMBER = r"-?+(?:0|[1-9]\d{0,14}+)(?:\.\d{1,15}+)?+"
_OTHER = r'(?:[^\x00-\x7f\x{fffd}]|\\["\\/bfnrt])'  # a character outside ASCII, or an escape
_RUN = f"(?>{_ASCII}*)"  # an atomic group is faster in Java than a possessive quantifier
_PLAIN_STRING = f'"{_RUN}(?:{_OTHER}{_RUN})*+"'


def _json(depth: int) -> str:
    """Return a pattern for JSON values with up to *depth* levels, which matches in linear time.

    The pattern excludes values that the core may reject, or write with more than three times the
    length. These are exponents, numbers with more digits than a double, and numeric character
    escapes, which may be halves of a surrogate pair. A space after a colon or a comma is allowed,
    because most JSON writers add it.
    """
    scalar = f"{_PLAIN_STRING}|{_PLAIN_NUMBER}|true|false|null"
    if not depth:
        return f"(?:{scalar})"
    value = _json(depth - 1)
    values = rf"\[(?:{value}(?:, ?+(?!\])|(?=\])))*+\]"
    pairs = rf'\{{(?:"{_RUN}": ?+{value}(?:, ?+(?=")|(?=\}})))*+\}}'
    return f"(?:{scalar}|{values}|{pairs})"


# The patterns of the optional fields of an operation.
_EXTRAS = {
    "tags": _names_up_to(limits.TAGS_MAX),
    "changed": _names_up_to(limits.TAGS_MAX),
    "data": _json(_DATA_DEPTH),
}
# The longest line for the ordered pattern. A longer line might exceed the core's limit, because the
# core writes some characters of two bytes, such as U+0085, as six bytes.
_BYTES_MAX = limits.OPERATION_BYTES_MAX // 3 - 100
_MARK = "\x01"  # the separator in the column `apart`; no line with it matches the ordered pattern
_MOMENT_CHARS = len("2026-01-01T00:00:00.001")


def order_of(line: str | None) -> tuple[str, ...]:
    """Return the keys of *line* in order; () if a required key is missing or a key is unknown."""
    try:
        raw = json.loads(line or "")
    except ValueError:
        return ()
    keys = raw.keys() if isinstance(raw, dict) else set()
    return tuple(raw) if _VALUES.keys() <= keys <= _VALUES.keys() | _EXTRAS.keys() else ()


def apart_column(order: Sequence[str]) -> Column:
    """Return the column `apart`: the column `value`, parsed by the pattern for the keys in *order*.

    `key_and_moment` reads the result. A line may lack any optional field, unless the field is the
    first key of *order*. Optional fields that are not in *order* may follow the last key of
    *order*.
    """
    if not order:
        return F.lit("")
    last = [name for name in _EXTRAS if name not in order]
    first, *others = (*order, *last)
    entries = _entry(first, "") + "".join(_entry(name, ", ?+") for name in others)
    groups = [name for name in order if name in _KEY_FIELDS]
    type, id, moment = (f"${groups.index(name) + 1}" for name in _KEY_FIELDS)
    replacement = f"{_MARK}{moment}{_MARK}{type}/{id}"
    parsed = current().replace(rf"\A\{{{entries}\}}\r?+\z", replacement)
    return F.when(F.octet_length("value") <= _BYTES_MAX, parsed).otherwise("")


def _entry(name: str, before: str) -> str:
    if name in _ORDERED:
        return f'{before}"{name}": ?+{_ORDERED[name]}'
    entry = f'"{name}": ?+{_EXTRAS[name]}'
    return f"(?:{before}{entry})?+" if before else f"{entry}(?=,)"


def key_and_moment() -> tuple[Column, Column]:
    """Return the columns key and moment of each line, both null if the line is not ordinary.

    Both are computed from the columns `value` and `apart`.
    """
    quick = F.col("apart").startswith(_MARK) & ~F.col("value").startswith(_MARK)
    slow = current().like(_ANY) & _each_key_once()
    type, id, stamp = (_value(name) for name in _KEY_FIELDS)
    quick_key = F.substring_index("apart", _MARK, -1)
    quick_moment = F.substring_index(F.substring("apart", 2, _MOMENT_CHARS), _MARK, 1)
    return (
        F.when(quick, quick_key).when(slow, F.concat(F.lower(type), F.lit("/"), id)),
        F.when(quick, quick_moment).when(slow, _moment(stamp)),
    )


def _moment(stamp: Column) -> Column:
    """Return the time *stamp* without the Z, cut to milliseconds, and without trailing zeros."""
    fraction = F.replace(F.substring(stamp, 20, 4), F.lit("Z"), F.lit(""))
    return F.concat(F.substring(stamp, 1, 19), F.rtrim(fraction, F.lit("0.")))


def _value(name: str) -> Column:
    """Return the value of the key *name* in an ordinary line.

    Values in an ordinary line contain no quotes, so the pattern matches only at a key.
    """
    return F.regexp_extract("value", rf'"{name}"{_SPACE}:{_SPACE}"([^"]*+)', 1)


def _each_key_once() -> Column:
    """Return a column that is true if the line has each of the four required keys.

    `_ANY` matches a line with exactly four keys, so each required key then occurs once.
    """
    there = [_value(name) != "" for name in _KEY_FIELDS]
    return there[0] & there[1] & there[2] & F.col("value").rlike(rf'"parents"{_SPACE}:')


def recognise_lines(lines: DataFrame) -> DataFrame:
    """Return the place and the text of each of *lines* (`engine.LINES`), with its key and moment.

    The key and the moment are null if a line is not ordinary. If the type of an ordinary line is
    not in lower case, `note` says so.
    """
    head = lines.select("value").head()
    apart = apart_column(order_of(head["value"]) if head else ())
    key, moment = key_and_moment()
    type, is_quick = _value("type"), F.col("apart").startswith(_MARK)
    other = (type != F.lower(type)) & key.isNotNull()
    words = F.concat(F.lit(RENAMED[0]), type, F.lit(RENAMED[1]), F.lower(type))
    note = F.when(is_quick, F.lit(None)).when(other, words)
    return lines.withColumn("apart", apart).select(
        *("path", "block", "number", "text"),
        *(key.alias("key"), moment.alias("moment"), note.alias("note")),
    )


def read_by_core(lines: DataFrame) -> DataFrame:
    """Return the lines that are not ordinary, with the core's result (`engine.READ`) for each."""
    read = F.udf(_read, READ, useArrow=False)
    unknown = lines.where("key IS NULL").drop("key", "moment", "note")
    return unknown.withColumn("read", read("text")).select(*unknown.columns, "read.*")


def object_lines(lines: DataFrame, read: DataFrame) -> DataFrame:
    """Return all lines that describe an object.

    These are the ordinary lines of *lines*, and the valid lines of *read* (`read_by_core`).
    """
    columns = ["path", "block", "number", "text", "key", "moment"]
    recognised, good = (each.where("key IS NOT NULL").select(columns) for each in (lines, read))
    return recognised.unionByName(good)


def latest(lines: DataFrame) -> DataFrame:
    """Return the last line of each object, in the order of files and of lines in a file.

    Only the lines of repeated keys are sorted. The repeated keys are found by a hash, in a third of
    the time of a comparison by key. After a hash collision, too many lines are sorted, which does
    no harm.
    """
    hashed = lines.withColumn("hash", hash_of_key())
    repeated = hashed.groupBy("hash").count().where("count > 1").select("hash")
    twice = hashed.join(repeated, "hash", "left_semi")
    last_first = Window.partitionBy("key").orderBy(
        F.desc("path"), F.desc("block"), F.desc("number")
    )
    last = twice.withColumn("rank", F.row_number().over(last_first)).where("rank = 1").drop("rank")
    once = hashed.join(repeated, "hash", "left_anti")
    return once.unionByName(last).drop("hash")


def notes_of(lines: DataFrame, read: DataFrame | None) -> dict[str, int]:
    """Return the most frequent notes of *lines* and *read*, with the numbers of their lines."""
    notes = (
        lines.select("note") if read is None else lines.select("note").union(read.select("note"))
    )
    counts = notes.where("note IS NOT NULL").groupBy("note").count()
    return dict(map(tuple, counts.orderBy(F.desc("count"), "note").limit(SHOWN_MAX).collect()))


def hash_of_key() -> Column:
    return F.xxhash64("key")


def of_types(table: DataFrame, types: frozenset[str]) -> DataFrame:
    """Return the rows of *types*, which are encoded as in a key; all rows if *types* is empty."""
    return table.where(is_of(types)) if types else table


def is_of(types: frozenset[str]) -> Column:
    if not types:
        return F.lit(True)
    return F.substring_index("key", "/", 1).isin(*sorted(types))


def _read(text: bytearray) -> tuple[str | None, str | None, int | None, str | None, str | None]:
    try:
        line = read_line(bytes(text))
    except Rejected as error:
        return None, None, None, str(error), None
    match line:
        case Described():
            return line.key, line.moment, None, None, line.note
        case End():
            return None, None, line.lines, None, None
    return None, None, None, None, None


_LOCAL = re.compile(r"^file:/+")  # the start of a local path in messages of Hadoop
# The text with which Spark's message names a file that it cannot read, and Java's text before the
# reason.
_FILE = re.compile(r"error while reading file (\S+)\.\s")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_FIRST = Window.unboundedPreceding
SHOWN_MAX = 10  # maximum number of bad lines to list, enough to show the problem
_READ_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class BadLine:
    path: str
    number: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.reason}"


class BadDump(Exception):
    """The dump has *count* bad lines, more than may be skipped. *first* are the first bad lines."""

    def __init__(self, count: int, first: list[BadLine]) -> None:
        self.count, self.first = count, first
        super().__init__(f"{count:,} bad line{'s' if count != 1 else ''}")


class BadFile(Exception):
    """A file of the dump cannot be read. *line* is the line at which reading failed, if known."""

    def __init__(self, path: str, reason: str, line: int | None = None) -> None:
        self.path, self.line = path, line
        self.is_cut = CUT in reason
        rule = (
            f"a file that ends in {GZIP} must be gzip" if path.endswith(GZIP) else "cannot be read"
        )
        super().__init__(f"{path}{f':{line}' if line else ''}: {rule}: {reason}")

    def objection(self) -> Objection:
        """Return the objection to a dump with truncated gzip data. Call this only if *is_cut*."""
        where = f"{self.path}:{self.line}" if self.line else self.path
        sentence = f"the dump ends early: the gzip data of {where} are cut off"
        return Objection("truncated_dump", sentence)


def first_bad(bad: DataFrame, lines: DataFrame, names: Mapping[str, str]) -> list[BadLine]:
    """Return the first of the *bad* lines. *names* has the original path of each copied file.

    Splits of a file are read in parallel. So the number of a line is computed here, from the number
    of lines in the earlier splits of the file.
    """
    wanted = bad.orderBy("path", "block", "number").limit(SHOWN_MAX)
    splits = lines.groupBy("path", "block").agg(F.min("number").alias("start"), F.count("*"))
    earlier = Window.partitionBy("path").orderBy("block").rowsBetween(_FIRST, -1)
    before = F.coalesce(F.sum("count(1)").over(earlier), F.lit(0))
    placed = wanted.join(splits.withColumn("before", before), ["path", "block"])
    at = F.col("number") - F.col("start") + F.col("before") + 1
    rows = placed.orderBy("path", "block", "number").select("path", at, "error").collect()
    return [
        BadLine(names.get(display_path(path), display_path(path)), number, error)
        for path, number, error in rows
    ]


def display_path(path: str) -> str:
    """Return *path* without `file:`, and with its percent-encoding decoded."""
    return unquote(_LOCAL.sub("/", path))


def broken_file(message: str, names: Mapping[str, str]) -> BadFile | None:
    """Return the file that Spark could not read, or None if the error has another cause.

    *message* is the error of Spark, and *names* has the original path of each copied file.
    """
    file, causes = _FILE.search(message), _CAUSE.findall(message)
    if not file or not causes:
        return None
    path = display_path(file[1])
    line = _broken_line(path) if path.endswith(GZIP) else None
    return BadFile(names.get(path, path), CUT if CUT in message else causes[-1], line)


def _broken_line(address: str) -> int | None:
    """Return the number of the line at which the gzip data break off; None if it is unknown."""
    with files.open_file(address) as raw:
        unpacked, line = gzip.GzipFile(fileobj=raw), 0
        try:
            while text := unpacked.read1(_READ_BYTES):
                line = max(line, 1) + text.count(b"\n")
        except (OSError, EOFError):
            return line or None
        except zlib.error:  # unknown: some kilobytes before the error were not returned
            return None
    return None
