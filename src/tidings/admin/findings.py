"""Count and show the differences that a verification found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidings.core.maintenance.verify import Compared, differing
from tidings.core.model.operations import event_of
from tidings.core.state.rows import Difference, Kind, Row

SHOWN_MAX = 20  # differences in the table, to see their kinds
_NAMES = {"at_ms": "time", "expires_ms": "expiry"}
NOTHING = "nothing"


@dataclass(slots=True)
class Findings:
    """
    The results of the buckets compared so far; *first* are the first differences.

    *page* is the smallest page up to which a bucket was compared.
    """

    buckets: int = 0
    page: int = 0
    rows: int = 0
    agreeing: int = 0
    older: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    differing: list[int] = field(default_factory=list)
    first: list[Difference] = field(default_factory=list)

    @property
    def differences(self) -> int:
        return self.kinds.total()

    @property
    def aliens(self) -> int:
        return self.kinds[Kind.ALIEN]

    def add(self, compared: Compared) -> None:
        self.page = min(self.page, compared.checkpoint) if self.buckets else compared.checkpoint
        self.buckets += 1
        self.rows += compared.rows
        self.agreeing += compared.agreeing
        self.older += compared.older
        self.kinds.update(each.kind for each in compared.differences)
        if compared.differences:
            self.differing.append(compared.bucket)
        self.first += compared.differences[: SHOWN_MAX - len(self.first)]


def as_json(findings: Findings, feed: str, floor: int) -> dict[str, object]:
    """Return the last line of `--json`."""
    return {
        "feed": feed,
        "floor": floor,
        "page": findings.page,
        "buckets": findings.buckets,
        "agreeing": findings.agreeing,
        "older": findings.older,
        "differences": {kind.value: findings.kinds[kind] for kind in Kind},
    }


def difference_as_json(difference: Difference) -> dict[str, object]:
    """Return a line of `--json`. It names the place, but not the content of the operations."""
    return {
        "difference": difference.kind.value,
        "key": difference.key,
        "bucket": difference.bucket,
        "found": _place(difference.stored),
        "wanted": _place(difference.wanted),
        "unequal": _unequal(difference),
    }


def cells(difference: Difference) -> tuple[str, str, str, str]:
    """Return a row of the table: kind, object, and the operation in the state and in the log."""
    kind = difference.kind.value
    if difference.kind in (Kind.ALTERED, Kind.BROKEN):
        kind = f"{kind}: {', '.join(_unequal(difference))}".removesuffix(": ")
    return kind, difference.key, _described(difference.stored), _described(difference.wanted)


def sentence(findings: Findings, feed: str, floor: int) -> str:
    parts = [
        f"{findings.agreeing:,} rows of {feed} agree with its log up to page {findings.page:,}"
    ]
    if findings.older:
        parts.append(f"{findings.older:,} are older than the log, which begins with page {floor:,}")
    kinds = [f"{findings.kinds[kind]:,} {kind.value}" for kind in Kind if findings.kinds[kind]]
    parts.append(", ".join(kinds) if kinds else "nothing differs")
    return "; ".join(parts)


def _unequal(difference: Difference) -> list[str]:
    if difference.stored is None or difference.wanted is None:
        return []
    names = differing(difference.stored, difference.wanted)
    return [_NAMES.get(name, name) for name in names]


def _place(row: Row | None) -> dict[str, object] | None:
    return (
        None if row is None else {"page": row.page, "slot": row.slot, "event": event_of(row.line)}
    )


def _described(row: Row | None) -> str:
    return NOTHING if row is None else f"{event_of(row.line)} at {row.page}/{row.slot}"


def show(result: Findings, feed: str, floor: int) -> None:
    """Print the first differences as a table, and a summary."""
    console = Console(highlight=False, soft_wrap=True)
    if result.first:
        table = Table()
        for name in ("difference", "object", "in the state", "in the log"):
            table.add_column(name, overflow="fold")
        for difference in result.first:
            table.add_row(*map(Text, cells(difference)))
        console.print(table)
    hidden = result.differences - len(result.first)
    if hidden:
        console.print(f"and {hidden:,} more: --json tells all")
    console.print(f"{sentence(result, feed, floor)}.")
