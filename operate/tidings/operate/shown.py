"""How far a verification is, and what it found, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from . import findings

if TYPE_CHECKING:
    from .findings import Findings


def progress() -> Progress:
    """A bar for each phase on a terminal; nothing elsewhere."""
    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<18}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def show(found: Findings, feed: str, floor: int) -> None:
    """The first differences as a table, and a sentence."""
    console = Console(highlight=False, soft_wrap=True)
    if found.first:
        table = Table()
        for name in ("difference", "object", "in the state", "in the log"):
            table.add_column(name, overflow="fold")
        for difference in found.first:
            table.add_row(*map(Text, findings.cells(difference)))
        console.print(table)
    hidden = found.differences - len(found.first)
    if hidden:
        console.print(f"and {hidden:,} more: --json tells all")
    console.print(f"{findings.sentence(found, feed, floor)}.")
