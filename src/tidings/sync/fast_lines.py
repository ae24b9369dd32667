"""
Lines that Spark takes apart by itself: plain names, a time in UTC.

One pattern knows those of four keys, in any order and any letters. In most dumps every line has its
keys in one order, letters of ASCII, and a type in small ones: a pattern made for that order takes
such a line apart in one go, in a third of the time, with its tags and its data where it has any.
Neither takes a line that the core would read otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from tidings.core import limits
from tidings.sync.engines import engine

_SPACE = r"[\t\r ]*+"
# Without escapes, and without U+FFFD, which may stand for bytes that are no UTF-8.
_LETTER = r'[^"\\\x00-\x1f\x7f\x{fffd}]'
_ASCII = r"[ !#-\[\]-~]"  # of those the ones a pattern compares quickly
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
)
_SECOND = rf"(?!0000)\d{{4}}-{_DAY}T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_FRACTION = r"(?:\.\d{1,12})?"
_TYPE = r"[A-Za-z0-9_.:+ -]{1,128}+"
# The bounds are in characters of up to four bytes, so that they keep within those in bytes.
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


_TOLD = ("type", "id", "timestamp")  # what a line says of its object
_ORDERED = {
    "type": r'"([a-z0-9_.:+ -]{1,128}+)"',  # as it stands in a key: capital letters are for _ANY
    "id": f'"({_ASCII}{{1,128}}+)"',
    # To the millisecond, without zeros that say nothing.
    "timestamp": rf'"({_SECOND}(?={_FRACTION}Z)(?:\.\d{{0,2}}[1-9])?)[.\d]*+Z"',
    "parents": _names_up_to(limits.PARENTS_MAX),
}
_DATA_DEPTH = 4  # objects and arrays inside each other; the core reads what is deeper
_PLAIN_NUMBER = r"-?+(?:0|[1-9]\d{0,14}+)(?:\.\d{1,15}+)?+"
_OTHER = r'(?:[^\x00-\x7f\x{fffd}]|\\["\\/bfnrt])'  # than letters of ASCII, which go quickly
_RUN = f"(?>{_ASCII}*)"  # in Java quicker than a possessive quantifier
_PLAIN_STRING = f'"{_RUN}(?:{_OTHER}{_RUN})*+"'


def _json(depth: int) -> str:
    """
    A pattern of JSON values with *depth* containers inside each other, in time linear in the text.

    It leaves out what the core may refuse or write at more than three times the length: escaped
    characters by number, which may be halves of a pair, exponents, and digits beyond a double's.
    Space it takes where writers of JSON put it, behind a colon and a comma.
    """
    scalar = f"{_PLAIN_STRING}|{_PLAIN_NUMBER}|true|false|null"
    if not depth:
        return f"(?:{scalar})"
    value = _json(depth - 1)
    values = rf"\[(?:{value}(?:, ?+(?!\])|(?=\])))*+\]"
    pairs = rf'\{{(?:"{_RUN}": ?+{value}(?:, ?+(?=")|(?=\}})))*+\}}'
    return f"(?:{scalar}|{values}|{pairs})"


# What an operation may have beyond the four; each may be missing.
_EXTRAS = {
    "tags": _names_up_to(limits.TAGS_MAX),
    "changed": _names_up_to(limits.TAGS_MAX),
    "data": _json(_DATA_DEPTH),
}
# The line that the core makes of it keeps within its bound: two bytes may become six (U+0085).
_BYTES_MAX = limits.OPERATION_BYTES_MAX // 3 - 100
_MARK = "\x01"  # begins and divides what the ordered pattern makes of a line; it is in no such line
_MOMENT_CHARS = len("2026-01-01T00:00:00.001")


def order_of(line: str | None) -> tuple[str, ...]:
    """In which order *line* has its keys; none where they are not those of ordinary lines."""
    try:
        raw = json.loads(line or "")
    except ValueError:
        return ()
    keys = raw.keys() if isinstance(raw, dict) else set()
    return tuple(raw) if _VALUES.keys() <= keys <= _VALUES.keys() | _EXTRAS.keys() else ()


def taken_apart(order: Sequence[str]) -> Column:
    """
    Of a column `value`: what `key` and `moment` ask for as `apart`.

    Lines of the four keys alone are taken apart, too, if the rest comes last in the others, as it
    does where *order* does not say.
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
    """From the columns `value` and `apart`; null where the line is not ordinary."""
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
    """Without the Z, to the millisecond, and without zeros that say nothing."""
    fraction = F.replace(F.substring(stamp, 20, 4), F.lit("Z"), F.lit(""))
    return F.concat(F.substring(stamp, 1, 19), F.rtrim(fraction, F.lit("0.")))


def _value(name: str) -> Column:
    """Of an ordinary line, which has no quote inside a value: so this can only be its key."""
    return F.regexp_extract("value", rf'"{name}"{_SPACE}:{_SPACE}"([^"]*+)', 1)


def _each_key_once() -> Column:
    """Four entries, and each of the four keys is there."""
    there = [_value(name) != "" for name in _TOLD]
    return there[0] & there[1] & there[2] & F.col("value").rlike(rf'"parents"{_SPACE}:')
