"""
Parse ordinary lines in Spark itself: plain names, a time in UTC.

A general pattern matches the four keys in any order, with any characters. In most dumps every line
has its keys in the same order, with ASCII characters and a lower-case type. A pattern built for
that order parses such a line in one pass, in a third of the time, including tags and data. Neither
pattern matches a line that the core would read differently.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidings.core import limits
from tidings.sync.engines import engine

_SPACE = r"[\t\r ]*+"
# Without escapes, and without U+FFFD, which may replace bytes that are not UTF-8.
_LETTER = r'[^"\\\x00-\x1f\x7f\x{fffd}]'
_ASCII = r"[ !#-\[\]-~]"  # the subset that a pattern compares fast
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
)
_SECOND = rf"(?!0000)\d{{4}}-{_DAY}T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_FRACTION = r"(?:\.\d{1,12})?"
_TYPE = r"[A-Za-z0-9_.:+ -]{1,128}+"
# The limits are in characters of up to four bytes, so that the limits in bytes hold.
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


_TOLD = ("type", "id", "timestamp")  # fields that describe the object
_ORDERED = {
    "type": r'"([a-z0-9_.:+ -]{1,128}+)"',  # as in a key: upper case is left to _ANY
    "id": f'"({_ASCII}{{1,128}}+)"',
    # To the millisecond, without trailing zeros.
    "timestamp": rf'"({_SECOND}(?={_FRACTION}Z)(?:\.\d{{0,2}}[1-9])?)[.\d]*+Z"',
    "parents": _names_up_to(limits.PARENTS_MAX),
}
_DATA_DEPTH = 4  # nesting of objects and arrays; the core reads deeper ones
_PLAIN_NUMBER = r"-?+(?:0|[1-9]\d{0,14}+)(?:\.\d{1,15}+)?+"
_OTHER = r'(?:[^\x00-\x7f\x{fffd}]|\\["\\/bfnrt])'  # other than ASCII, which is matched fast
_RUN = f"(?>{_ASCII}*)"  # faster in Java than a possessive quantifier
_PLAIN_STRING = f'"{_RUN}(?:{_OTHER}{_RUN})*+"'


def _json(depth: int) -> str:
    """
    Return a pattern for JSON values with up to *depth* levels, matched in linear time.

    It excludes values that the core may reject or write at more than three times the length:
    numeric character escapes, which may be halves of a surrogate pair, exponents, and digits beyond
    a double's precision. It allows a space after a colon or a comma, like most JSON writers.
    """
    scalar = f"{_PLAIN_STRING}|{_PLAIN_NUMBER}|true|false|null"
    if not depth:
        return f"(?:{scalar})"
    value = _json(depth - 1)
    values = rf"\[(?:{value}(?:, ?+(?!\])|(?=\])))*+\]"
    pairs = rf'\{{(?:"{_RUN}": ?+{value}(?:, ?+(?=")|(?=\}})))*+\}}'
    return f"(?:{scalar}|{values}|{pairs})"


# Optional fields of an operation, in addition to the four.
_EXTRAS = {
    "tags": _names_up_to(limits.TAGS_MAX),
    "changed": _names_up_to(limits.TAGS_MAX),
    "data": _json(_DATA_DEPTH),
}
# Keeps the line that the core writes within its limit: two bytes may become six (U+0085).
_BYTES_MAX = limits.OPERATION_BYTES_MAX // 3 - 100
_MARK = "\x01"  # separator in the result of the ordered pattern; no such line contains it
_MOMENT_CHARS = len("2026-01-01T00:00:00.001")


def order_of(line: str | None) -> tuple[str, ...]:
    """Return the order of the keys in *line*; empty if they are not those of an ordinary line."""
    try:
        raw = json.loads(line or "")
    except ValueError:
        return ()
    keys = raw.keys() if isinstance(raw, dict) else set()
    return tuple(raw) if _VALUES.keys() <= keys <= _VALUES.keys() | _EXTRAS.keys() else ()


def taken_apart(order: Sequence[str]) -> Column:
    """
    Parse the column `value` into the column `apart`, which `key` and `moment` read.

    Lines with only the four keys match, too, if the optional fields are last in the others. This is
    the case if *order* does not include them.
    """
    if not order:
        return F.lit("")
    last = [name for name in _EXTRAS if name not in order]
    first, *others = (*order, *last)
    entries = _entry(first, "") + "".join(_entry(name, ", ?+") for name in others)
    groups = [name for name in order if name in _TOLD]
    type, id, moment = (f"${groups.index(name) + 1}" for name in _TOLD)
    replacement = f"{_MARK}{moment}{_MARK}{type}/{id}"
    whole = engine.current().replaced(rf"\A\{{{entries}\}}\r?+\z", replacement)
    return F.when(F.octet_length("value") <= _BYTES_MAX, whole).otherwise("")


def _entry(name: str, before: str) -> str:
    if name in _ORDERED:
        return f'{before}"{name}": ?+{_ORDERED[name]}'
    entry = f'"{name}": ?+{_EXTRAS[name]}'
    return f"(?:{before}{entry})?+" if before else f"{entry}(?=,)"


def key_and_moment() -> tuple[Column, Column]:
    """
    Return key and moment from the columns `value` and `apart`; null if a line is not ordinary.
    """
    quick = F.col("apart").startswith(_MARK) & ~F.col("value").startswith(_MARK)
    slow = engine.current().like(_ANY) & _each_key_once()
    type, id, stamp = (_value(name) for name in _TOLD)
    quick_key = F.substring_index("apart", _MARK, -1)
    quick_moment = F.substring_index(F.substring("apart", 2, _MOMENT_CHARS), _MARK, 1)
    return (
        F.when(quick, quick_key).when(slow, F.concat(F.lower(type), F.lit("/"), id)),
        F.when(quick, quick_moment).when(slow, _moment(stamp)),
    )


def _moment(stamp: Column) -> Column:
    """Return *stamp* without the Z, to the millisecond, and without trailing zeros."""
    fraction = F.replace(F.substring(stamp, 20, 4), F.lit("Z"), F.lit(""))
    return F.concat(F.substring(stamp, 1, 19), F.rtrim(fraction, F.lit("0.")))


def _value(name: str) -> Column:
    """
    Return a value of an ordinary line. It has no quotes inside values, so only a key can match.
    """
    return F.regexp_extract("value", rf'"{name}"{_SPACE}:{_SPACE}"([^"]*+)', 1)


def _each_key_once() -> Column:
    """Return whether each of the four keys occurs in the four entries."""
    there = [_value(name) != "" for name in _TOLD]
    return there[0] & there[1] & there[2] & F.col("value").rlike(rf'"parents"{_SPACE}:')
