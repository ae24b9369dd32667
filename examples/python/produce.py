"""
Post what changed, each change once: python produce.py URL KEY

KEY names this piece of work, the number of a transaction for instance. Run twice with the same one,
within a day, and the second run appends nothing: it is told the ids of the first.
"""

from __future__ import annotations

import sys
from typing import Any

from tidings.client import Poster

CHANGES: list[dict[str, Any]] = [
    {"event": "insert", "type": "video", "id": "x32", "parents": ["user/ann"]},
    {"event": "update", "type": "user", "id": "ann", "data": {"videos": 1}},
]


def main(url: str, key: str) -> None:
    with Poster(url) as poster:
        print(*poster.post(CHANGES, key=key))


if __name__ == "__main__":
    main(*sys.argv[1:])
