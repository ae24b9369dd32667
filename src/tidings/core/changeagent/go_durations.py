"""Durations as Go writes them: `300ms`, `1.5h`, `2h45m`. Inside they are nanoseconds."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_CHARS_MAX = 64  # far longer than any that is meant
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"[+-]?(?:{_PART.pattern})+", re.ASCII)
_NS_MAX = 2**63 - 1


def parse(text: str) -> int:
    """
    Nanoseconds.

    Raises:
        ValueError: not a duration, in the words of Go.
    """
    if text in ("0", "+0", "-0"):
        return 0
    if len(text) > _CHARS_MAX or not _WHOLE.fullmatch(text):
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    parts = _PART.findall(text)
    total = sum(int(Decimal(number) * _UNITS[unit]) for number, unit in parts)
    if total > _NS_MAX:
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    return -total if text.startswith("-") else total


def written(ns: int) -> str:
    """As Go prints it."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, size in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if ns < 1_000 * size:
            return f"{sign}{_plain(Decimal(ns) / size)}{unit}"
    minutes, rest = divmod(ns, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_plain(Decimal(rest) / _UNITS['s'])}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _quoted(text: str) -> str:
    return f'"{text[:_CHARS_MAX]}"'
