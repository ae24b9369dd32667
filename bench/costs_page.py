"""Write docs/operations/COSTS.md and the prices in README.md from measurements and list prices."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra import prices, settings

from . import bill
from .bill import MONTH_S, SIZES, Bill, Line

PAGE = Path(__file__).parents[1] / "docs" / "operations" / "COSTS.md"
README = Path(__file__).parents[1] / "README.md"
IN_README = {
    "dev": r"\$[\d.]+( a month\]\(docs/operations/COSTS\.md\))",
    "prod": r"\$[\d.]+( as `prod`)",
}
MEASURED = Path(__file__).parent / "costs.json"

SMALLEST = 0.02  # of a bill; smaller amounts share one line
_LENGTHS_S = (60, 120, 180, 840)  # lengths that a stage can be set to
_TEMPLATE = Path(__file__).parent / "costs.md"


def text(measured: Mapping[str, Any]) -> str:
    bills = [Bill(size, measured) for size in SIZES]
    return _TEMPLATE.read_text(encoding="utf-8").format(
        date=prices.DATE,
        region=prices.REGION,
        trip=bill.ROUND_TRIP_MS,
        core=bill.FULL_CORE_MB,
        log=bill.PLATFORM_LOG_BYTES,
        polls=bill.POLLS_PER_S,
        replays="".join(map(_replay, measured["replayed"].items())),
        erasures="".join(map(_erasure, measured["erased"].items())),
        feeds="".join(map(_feeds, measured["feeds"].items())),
        sweeps="".join(map(_sweep, measured["feeds"].items())),
        summaries="".join(map(_summary, bills)),
        idle="".join(_idle(stage.name, measured) for stage in settings.STAGES),
        bills="".join(map(_bill, bills)),
        held=bill.held_dollars(),
        leaves=bill.LEAVES,
        lengths="".join(_length(bills[0], seconds) for seconds in _LENGTHS_S),
    )


def _replay(measured: tuple[str, Mapping[str, int]]) -> str:
    batch, units = measured
    price = prices.READ_UNIT
    dollars = units["reads"] * price.dollars / price.per
    return f"| {batch} | {units['reads']:,} RRU | {units['strongly']:,} RRU | ${dollars:.4f} |\n"


def _erasure(measured: tuple[str, Mapping[str, float]]) -> str:
    count, used = measured
    dollars = _units_dollars(used)
    row = f"| {int(count):,} | {used['writes']:,.0f} WRU | {used['reads']:,.0f} RRU |"
    return f"{row} {used['cpu_ms'] / 1000:.1f} s | ${dollars:.5f} |\n"


_FEEDS = {
    "create": "create a feed",
    "create again": "create it again after a deletion",
    "delete 1": "delete a feed with 1 operation",
    "delete 1000": "delete a feed with 1,000 operations, each on a page and object of its own",
}
_SWEEP = "sweep "  # precedes a number of feeds in the measurements


def _feeds(measured: tuple[str, Mapping[str, float]]) -> str:
    what, used = measured
    if what not in _FEEDS:
        return ""
    row = f"| {_FEEDS[what]} | {used['writes']:,.0f} WRU | {used['reads']:,.0f} RRU |"
    return f"{row} ${_units_dollars(used):.6f} |\n"


def _sweep(measured: tuple[str, Mapping[str, float]]) -> str:
    what, used = measured
    if not what.startswith(_SWEEP):
        return ""
    runs = MONTH_S / 60
    row = f"| {int(what.removeprefix(_SWEEP)):,} | {used['writes']:,.0f} WRU | {used['reads']:,.1f}"
    return f"{row} RRU | ${runs * _units_dollars(used):.2f} |\n"


def _units_dollars(used: Mapping[str, float]) -> float:
    return sum(
        used[name] * price.dollars / price.per
        for name, price in (("writes", prices.WRITE_UNIT), ("reads", prices.READ_UNIT))
    )


def _summary(made: Bill) -> str:
    per_million = made.dollars / made.size.operations * 1e6
    name = made.size.name
    anchor = name.lower().replace(" ", "-")
    return (
        f"| [{name}](#{anchor}) | ${made.dollars:,.2f} | ${bill.total(made.idle_lines()):,.2f} |"
        f" ${per_million:,.2f} |\n"
    )


def _idle(stage: str, measured: Mapping[str, Any]) -> str:
    """Return the costs of an idle stage by their largest parts; scheduled functions are one
    amount."""
    lines = bill.idle(stage, measured)
    named = {"alarms": 0.0, "dashboards": 0.0, "keys": 0.0, "keys: rotations": 0.0, "": 0.0}
    for each in lines:
        named[each.what if each.what in named else ""] += each.dollars
    cells = [f"${dollars:,.2f}" for dollars in (*named.values(), bill.total(lines))]
    return f"| `{stage}` | {' | '.join(cells)} |\n"


def _bill(made: Bill) -> str:
    limit = SMALLEST * made.dollars
    large = [each for each in made.lines() if each.dollars >= limit]
    small = [each for each in made.lines() if each.dollars < limit]
    rows = "".join(map(_row, large))
    rest = sum(each.dollars for each in small)
    rows += f"| {len(small)} lines below {SMALLEST:.0%} each | | {rest:,.2f} |\n"
    total = f"| **together** | | **{made.dollars:,.2f}** |\n"
    head = "| what | formula | dollars |\n|---|---|---|\n"
    return f"## {made.size.name}\n\n{made.size.says}\n\n{head}{rows}{total}\n"


def _length(made: Bill, seconds: int) -> str:
    """Return the costs for streams of *seconds*."""
    returns = MONTH_S / seconds
    back = sum(each.dollars for each in made.coming_back(returns))
    abandoned = 1000 * seconds * bill.MEMORY_GB["stream"]
    dollars = abandoned * prices.GB_SECOND.dollars / prices.GB_SECOND.per
    return f"| {seconds} | {returns:,.0f} | ${back:,.2f} | {seconds / 2:,.0f} | ${dollars:,.2f} |\n"


def _row(each: Line) -> str:
    return f"| {each.what} | {each.formula} | {each.dollars:,.2f} |\n"


def readme(page: str, measured: Mapping[str, Any]) -> str:
    """Return *page* with the current costs of idle stages.

    Raises:
        ValueError: the page does not contain the costs exactly once.
    """
    for stage, said in IN_README.items():
        dollars = f"${bill.total(bill.idle(stage, measured)):.2f}"
        found = list(re.finditer(said, page))
        if len(found) != 1:
            raise ValueError(f"{README.name} does not say once what an idle {stage} costs")
        page = page[: found[0].start()] + dollars + page[found[0].start(1) :]
    return page


def write(measured: Mapping[str, Any]) -> None:
    PAGE.write_text(text(measured), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8"), measured), encoding="utf-8")


def kept() -> Mapping[str, Any]:
    """Return the last measured figures."""
    found: Mapping[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def main() -> int:
    write(kept())
    return 0


if __name__ == "__main__":
    sys.exit(main())
