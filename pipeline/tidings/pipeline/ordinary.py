"""
Lines that Spark takes apart by itself: four keys, plain names, a time in UTC.

One pattern knows them in any order and any letters. In most dumps every line has its keys in one
order, and letters of ASCII: a pattern made for that order takes such a line apart in one go, in a
third of the time. Neither takes a line that the core would read otherwise.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

_SPACE = r"[\t\r ]*+"
# Without escapes, and without U+FFFD, which may stand for bytes that are no UTF-8.
_LETTER = r'[^"\\\x00-\x1f\x7f\x{fffd}]'
_ASCII = r"[ !#-\[\]-~]"  # of those the ones a pattern compares quickly
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,12})?"
_MOMENT = rf"(?!0000)\d{{4}}-{_DAY}T{_TIME}"
_TYPE = r"[A-Za-z0-9_.:+ -]{1,128}+"
# The bounds are in characters of up to four bytes, so that they keep within those in bytes.
_NAMES = rf'(?:{_SPACE}"{_LETTER}{{1,160}}+"{_SPACE}(?:,(?={_SPACE}")|(?=\]))){{0,64}}+{_SPACE}'
_VALUES = {
    "type": f'"{_TYPE}"',
    "id": rf'"{_LETTER}{{1,128}}+"',
    "timestamp": f'"{_MOMENT}Z"',
    "parents": rf"\[{_NAMES}\]",
}
_ENTRY = "|".join(rf'"{name}"{_SPACE}:{_SPACE}{value}{_SPACE}' for name, value in _VALUES.items())
_ANY = rf'\A{_SPACE}\{{(?:{_SPACE}(?:{_ENTRY})(?:,(?={_SPACE}")|(?=\}}))){{4}}+\}}{_SPACE}\z'

_TOLD = ("type", "id", "timestamp")  # what a line says of its object
_ORDERED = {
    "type": f'"({_TYPE})"',
    "id": f'"({_ASCII}{{1,128}}+)"',
    "timestamp": f'"({_MOMENT})Z"',
    "parents": rf'\[(?:"{_ASCII}{{1,160}}+"(?:, ?+"{_ASCII}{{1,160}}+"){{0,63}}+)?+\]',
}
_MARK = "\x01"  # begins and divides what the ordered pattern makes of a line; it is in no such line


def order_of(line: str) -> tuple[str, ...]:
    """In which order *line* has its keys; none where they are not the four of ordinary lines."""
    try:
        raw = json.loads(line)
    except ValueError:
        return ()
    return tuple(raw) if isinstance(raw, dict) and raw.keys() == _VALUES.keys() else ()


def taken_apart(order: Sequence[str]) -> Column:
    """Of a column `value`: what `key` and `moment` ask for as `apart`."""
    if not order:
        return F.lit("")
    entries = ", ?+".join(f'"{name}": ?+{_ORDERED[name]}' for name in order)
    groups = [name for name in order if name in _TOLD]
    told = "".join(f"{_MARK}${groups.index(name) + 1}" for name in _TOLD)
    return F.regexp_replace("value", rf"\A\{{{entries}\}}\r?+\z", told)


def key_and_moment() -> tuple[Column, Column]:
    """From the columns `value` and `apart`; null where the line is not ordinary."""
    quick = F.col("apart").startswith(_MARK) & ~F.col("value").startswith(_MARK)
    slow = F.col("value").rlike(_ANY) & _each_key_once()
    of_quick, of_slow = ([read(name) for name in _TOLD] for read in (_part, _value))
    return (
        F.when(quick, _key(*of_quick[:2])).when(slow, _key(*of_slow[:2])),
        F.when(quick, _moment(of_quick[2])).when(slow, _moment(of_slow[2])),
    )


def _key(type: Column, id: Column) -> Column:
    return F.concat(F.lower(type), F.lit("/"), id)


def _moment(stamp: Column) -> Column:
    """Without the Z, to the millisecond, and without zeros that say nothing."""
    fraction = F.replace(F.substring(stamp, 20, 4), F.lit("Z"), F.lit(""))
    return F.concat(F.substring(stamp, 1, 19), F.rtrim(fraction, F.lit("0.")))


def _part(name: str) -> Column:
    """Of a line that was taken apart by its order."""
    behind = F.substring_index("apart", _MARK, _TOLD.index(name) - len(_TOLD))
    return F.substring_index(behind, _MARK, 1)


def _value(name: str) -> Column:
    """Of an ordinary line, which has no quote inside a value: so this can only be its key."""
    return F.regexp_extract("value", rf'"{name}"{_SPACE}:{_SPACE}"([^"]*+)', 1)


def _each_key_once() -> Column:
    """Four entries, and each of the four keys is there."""
    there = [_value(name) != "" for name in _TOLD]
    return there[0] & there[1] & there[2] & F.col("value").rlike(rf'"parents"{_SPACE}:')
