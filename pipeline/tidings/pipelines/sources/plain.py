"""Values of databases as JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

_IN_JSON = (str, int, bool, type(None))


def plain(value: Any) -> Any:
    """
    *value* as JSON has it: times as ISO 8601, durations in seconds, bytes as base64.

    What JSON has no type for, exact numbers among it, becomes text.
    """
    if isinstance(value, _IN_JSON):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has neither NaN nor infinity
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    return str(value)
