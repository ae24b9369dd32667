"""Generate operations like those of a video site's oplog: short ids, two or three parents."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from typing import Any

from tidings.core.model import timestamps

_FIRST_MS = 1_795_000_000_000  # timestamps start here, one per millisecond
_ALPHABET = string.ascii_lowercase + string.digits


def operations(
    count: int, *, seed: int = 1, objects: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield *count* operations on *objects* different objects (default: one object each)."""
    chance = random.Random(seed)
    for at in range(count):
        name = _name(at if objects is None else chance.randrange(objects))
        owner = "x" + "".join(chance.choices(_ALPHABET, k=5))
        yield {
            "event": chance.choice(("insert", "update", "update", "update", "delete")),
            "type": "video",
            "id": name,
            "parents": [f"video/{name}", f"user/{owner}"],
            "timestamp": timestamps.from_ms(_FIRST_MS + at),
        }


def ndjson(batch: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(operation) for operation in batch).encode()


def _name(at: int) -> str:
    """Return a name of seven characters that looks random and never repeats."""
    mixed = at * 2654435761 % 36**6
    digits = []
    for _ in range(6):
        mixed, digit = divmod(mixed, 36)
        digits.append(_ALPHABET[digit])
    return "x" + "".join(digits)
