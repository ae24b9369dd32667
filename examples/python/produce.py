"""Post changes, each exactly once: python produce.py URL KEY

KEY identifies this piece of work, for example the number of a transaction. If the program runs
twice within a day with the same KEY, the second run appends nothing and gets the ids of the first.
"""

from __future__ import annotations

import sys
from contextlib import suppress
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
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
