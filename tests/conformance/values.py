"""The values in a case: `${name}` is looked up, `{$verb: ...}` is made or matched.

An operation may be written short: `{insert: a, parents: [p]}` is an insert of the object `a`
of the case's own type, `without: [id]` leaves a field out.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

EVENTS = ("insert", "update", "delete", "leave", "erase")
_NAME = re.compile(r"\$\{([^}]+)\}")


def expand(value: Any, names: Mapping[str, Any]) -> Any:
    """*value* with every name and every maker replaced."""
    if isinstance(value, str):
        whole = _NAME.fullmatch(value)
        if whole:
            return expand(look_up(whole[1], names), names)
        return _NAME.sub(lambda found: str(expand(look_up(found[1], names), names)), value)
    if isinstance(value, list):
        return [expand(item, names) for item in value]
    if isinstance(value, dict):
        if len(value) == 1:
            verb, argument = next(iter(value.items()))
            if verb in _MAKERS:
                return _MAKERS[verb](expand(argument, names))
        return {key: expand(item, names) for key, item in value.items()}
    return value


def look_up(path: str, names: Mapping[str, Any]) -> Any:
    """Look up `ids.0`, `s.cursor`: items of values saved under a name, or attributes."""
    first, *rest = path.split(".")
    found = names[first]
    for step in rest:
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    return found


def operation(short: Any, own_type: str) -> Any:
    """Return the operation that *short* abbreviates; other values stay as they are."""
    if not isinstance(short, dict):
        return short
    event = next((name for name in EVENTS if name in short), None)
    if event is None:
        return short
    fields = {key: item for key, item in short.items() if key not in (event, "without")}
    whole = {"event": event, "type": own_type, "id": short[event], **fields}
    return {key: item for key, item in whole.items() if key not in short.get("without", ())}


def is_matcher(expected: Any) -> bool:
    """Return True if *expected* is not a value but says what a value is like."""
    return isinstance(expected, dict) and len(expected) == 1 and {*expected} <= {*_MATCHERS}


def matches(expected: Any, found: Any) -> bool:
    """Equal, or as the matcher in *expected* says."""
    if is_matcher(expected):
        verb, argument = next(iter(expected.items()))
        return bool(_MATCHERS[verb](argument, found))
    return bool(expected == found)


def _repeat(argument: list[Any]) -> str:
    text, times = argument
    return str(text) * int(times)


def _noise(length: int) -> str:
    """Text that no compression makes shorter by more than a quarter; the same each time."""
    return b64encode(Random(length).randbytes(length)).decode()[:length]


def _times(argument: list[Any]) -> list[Any]:
    item, times = argument
    return [item] * int(times)


def _deep(levels: int) -> Any:
    """Arrays in each other, *levels* of them."""
    found: Any = []
    for _ in range(levels - 1):
        found = [found]
    return found


def _numbered(count: int) -> list[dict[str, str]]:
    return [{"insert": f"n{at:04}"} for at in range(count)]


def _event_id(parts: dict[str, int]) -> str:
    """Return an id as the server would give it, of a page it may never have written."""
    seconds = int(time.time()) - parts.get("seconds_ago", 0)
    page, slot = parts.get("page", 0), parts.get("slot", 0)
    return f"{parts.get('seconds', seconds):08x}{page:010x}{slot:06x}"


def _ms_ago(ms: int) -> str:
    return str(int(time.time() * 1000) - ms)


_MAKERS: dict[str, Any] = {
    "$repeat": _repeat,
    "$noise": _noise,
    "$times": _times,
    "$join": "".join,
    "$deep": _deep,
    "$numbered": _numbered,
    "$names": lambda count: [f"n{at:04}" for at in range(count)],
    "$event_id": _event_id,
    "$ms_ago": _ms_ago,
    "$upper": str.upper,
}


def _near_now(within_s: int, found: Any) -> bool:
    moment = datetime.fromisoformat(str(found).replace("Z", "+00:00"))
    return abs((datetime.now(UTC) - moment).total_seconds()) <= within_s


def _like(pattern: str, found: Any) -> bool:
    return isinstance(found, str) and re.fullmatch(pattern, found) is not None


_MATCHERS: dict[str, Any] = {
    "$near_now_s": _near_now,
    "$like": _like,
    "$counts_more_than": lambda least, found: sum(found.values()) > least,
    "$one_of": lambda options, found: found in options,
}
