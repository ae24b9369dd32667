"""What a run did, and what a query found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from tidings.client.cli.render import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.lake.job import Report


def summary(report: Report) -> Table:
    shown = Table(title=f"{report.feed}: {report.parts:,} parts", show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    rows = {
        "operations added to history": report.loaded,
        "history reaches page": report.through,
        "compacted up to page": report.bound,
        "operations in those parts": report.operations,
        "of them left": report.left,
        "parts written": report.written,
        "parts removed": report.removed,
    }
    for name, count in rows.items():
        shown.add_row(name, f"{count:,}")
    return shown


def answer(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    shown = Table(*columns)
    for row in rows:
        shown.add_row(*("null" if each is None else plain(str(each)) for each in row))
    return shown
