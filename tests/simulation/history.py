"""What happened in a run, one JSON line each; the same seed gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator

Entry = tuple[int, str, str, tuple[object, ...]]


class History:
    """Kept as tuples, because most runs are never printed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, now_us: int, who: str, what: str, *details: object) -> None:
        self.entries.append((now_us, who, what, details))

    def lines(self, last: int | None = None) -> Iterator[str]:
        for at, who, what, details in self.entries if last is None else self.entries[-last:]:
            yield json.dumps({"t": at, "who": who, "what": what, "details": details}, default=str)
