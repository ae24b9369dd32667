"""RFC 3339 timestamps. They are parsed with any offset and stored in UTC with milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
# This pattern matches the normal form (see `normal_form`), but does not check the day of the month.
_NORMAL = re.compile(
    r"(\d{4}-\d\d-\d\d)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{0,2}[1-9])?Z", re.ASCII
)
DAY_MS = 24 * 3600 * 1000
_MAX_OFFSET_HOURS = 23
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
MS_MAX = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS  # the end of the year 9999


def normal_form(text: str) -> str:
    """Return *text* in the normal form: in UTC, truncated to milliseconds, without trailing zeros.

    An example of the normal form is `2026-11-20T17:19:10.94Z`.

    Raises:
        ValueError: *text* is not RFC 3339, the day or hour does not exist, or the time is outside
            of the years 1 to 9999 in UTC.
    """
    normal = _NORMAL.fullmatch(text)
    if normal and _is_day(normal[1]):
        return text
    parts = _RFC3339.fullmatch(text)
    if parts is None:
        raise ValueError("not an RFC 3339 date-time")
    year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
    millis = int((parts[7] or "0")[:3].ljust(3, "0"))
    local = datetime(year, month, day, hour, minute, min(second, 59), millis * 1000, UTC)
    if second > 60:
        raise ValueError("second must be in 0..60")
    try:
        moment = local - _offset(parts[8], parts[9], parts[10])
    except OverflowError:
        raise ValueError("outside the years 1 to 9999 in UTC") from None
    return _format(moment)


@lru_cache(maxsize=16)  # the operations of a batch have the same time
def from_ms(ms: int) -> str:
    """Return the normal form of *ms* milliseconds since 1970, at most the end of the year 9999."""
    return _format(_EPOCH + min(ms, MS_MAX) * _MS)


def from_ms_if_set(ms: int) -> str | None:
    """Return the normal form of *ms*, or None if it is 0, the value of a time that is not set."""
    return from_ms(ms) if ms else None


def to_ms(text: str) -> int:
    """Return *text*, a timestamp in the normal form, as milliseconds since 1970.

    Compare timestamps by this number, because the texts do not sort by time.

    Raises:
        ValueError: *text* is not in the normal form.
    """
    if normal_form(text) != text:
        raise ValueError("not in the normal form")
    return (datetime.fromisoformat(text) - _EPOCH) // _MS


@lru_cache(maxsize=1_000)  # most timestamps are on few different days
def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _offset(sign: str | None, hours: str | None, minutes: str | None) -> timedelta:
    if sign is None or hours is None or minutes is None:
        return timedelta()
    if int(hours) > _MAX_OFFSET_HOURS or int(minutes) > 59:
        raise ValueError("offset must be within 23:59")
    size = timedelta(hours=int(hours), minutes=int(minutes))
    return size if sign == "+" else -size


def _format(moment: datetime) -> str:
    text = (
        f"{moment.year:04}-{moment.month:02}-{moment.day:02}"
        f"T{moment.hour:02}:{moment.minute:02}:{moment.second:02}"
    )
    millis = f"{moment.microsecond // 1000:03}".rstrip("0")
    return f"{text}.{millis}Z" if millis else f"{text}Z"
