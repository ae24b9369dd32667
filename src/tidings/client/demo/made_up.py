"""Generate demo operations without a repository: videos that people upload, edit and delete."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

_PEOPLE = ("ann", "ben", "cleo", "dev", "eva", "finn")
_SUBJECTS = ("harbour", "kitchen", "mountain", "night", "orchestra", "river", "street", "workshop")
_LIVING_MAX = 40  # few enough for a list on the screen


def operations(seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield operations without end. Each one inserts an object or is about an existing one."""
    chance = random.Random(seed)
    owners: dict[str, str] = {}
    number = 0
    while True:
        event = _event(chance, len(owners))
        if event == "insert":
            number += 1
            video = f"{chance.choice(_SUBJECTS)}-{number}"
            owners[video] = chance.choice(_PEOPLE)
        else:
            video = chance.choice(list(owners))
        yield {
            "event": event,
            "type": "video",
            "id": video,
            "parents": [f"user/{owners[video]}"],
            "data": {"views": chance.randrange(1_000)},
        }
        if event == "delete":
            del owners[video]


def _event(chance: random.Random, living: int) -> str:
    if not living:
        return "insert"
    if living >= _LIVING_MAX:
        return chance.choice(("update", "delete"))
    return chance.choice(("insert", "update", "update", "update", "delete"))
