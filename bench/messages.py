"""The message that a page becomes on a WebSocket, in plain and in gzip: its bytes and its time."""

from __future__ import annotations

import time

from tidings.core.model.events import GZIP, of_line, pack, to_json
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode

from bench.sections import Section
from bench.workload import operations

_ROUNDS = 200
_COUNTS = (1, 3, 10, 100)


def message(count: int, encoding: str = "") -> str:
    """Of a page of *count* operations, for who wants all of them."""
    page = _page(count)
    events = (to_json(of_line(page.id_prefix, slot, line)) for slot, line in page.entries())
    (made,) = pack(events, page.end.encode(), encoding)
    return made


def measure() -> Section:
    sizes = {count: (len(message(count)), len(message(count, GZIP))) for count in _COUNTS}
    plain, packed = sizes[100]
    rows = [
        (f"a page of {count}: plain, asked for in gzip, ratio", _told(*found))
        for count, found in sizes.items()
    ]
    rows += [
        (f"CPU of a page of 100, {name}", f"{_seconds(encoding) * 1e6:,.0f} us")
        for name, encoding in (("plain", ""), ("in gzip", GZIP))
    ]
    return Section(
        "A page on a WebSocket, in gzip",
        "a page of 100 operations takes at most a fifth of its plain bytes",
        rows,
        met=packed * 5 <= plain,
        notes=[
            f"Best of {_ROUNDS} rounds. In gzip means base64 of gzip, because API Gateway carries "
            "text alone; it is made once for all connections that get the same events."
        ],
    )


def _page(count: int) -> Page:
    return Page(1, encode([line_from(raw, now_ms=0) for raw in operations(count)]), "a", 0)


def _seconds(encoding: str) -> float:
    page = _page(100)
    events = [to_json(of_line(page.id_prefix, slot, line)) for slot, line in page.entries()]
    best = float("inf")
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        list(pack(events, page.end.encode(), encoding))
        best = min(best, time.perf_counter() - started)
    return best


def _told(plain: int, packed: int) -> str:
    return f"{plain:,} B, {packed:,} B, {plain / packed:.1f}"
