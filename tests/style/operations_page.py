"""The tables of OPERATIONS.md, MONITORING.md and SERVER.md, as the code has them.

`python -m tests.style.operations_page` writes them into the pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from docs.site import reference
from tests.style.source import ROOT
from tidings.aws.config.settings import METRICS_NAMESPACE, SETTINGS
from tidings.core.metrics import METRICS
from tidings.server.settings import Settings

PAGE = ROOT / "docs/operations/OPERATIONS.md"
MONITORING = ROOT / "docs/operations/MONITORING.md"
SERVER = ROOT / "docs/guides/SERVER.md"


def settings() -> str:
    return reference.variables(SETTINGS)


def server_settings() -> str:
    return reference.variables(Settings.declared())


def metrics() -> str:
    units = {"Count": "", "Seconds": " in seconds"}
    rows = [(f"`{each.name}`{units[each.unit]}", each.meaning) for each in METRICS]
    return _table((f"metric (namespace `{METRICS_NAMESPACE}`)", "meaning"), rows)


def server_metrics() -> str:
    """Return a table, and the names of the counters that the table of OPERATIONS.md explains."""
    rows = list(reference.server_metrics())
    there = {("counter", each.meaning) for each in METRICS}
    table = _table(
        ("metric", "type", "labels", "meaning"),
        [row for row in rows if (row[1], row[3]) not in there],
    )
    names = ", ".join(row[0] for row in rows if (row[1], row[3]) in there)
    return f"{table}\n[OPERATIONS.md](OPERATIONS.md#metrics) explains these counters: {names}.\n"


TABLES = {
    PAGE: {"settings": settings, "metrics": metrics},
    MONITORING: {"server-metrics": server_metrics},
    SERVER: {"settings": server_settings},
}


def rendered(path: Path) -> str:
    """Return the page at *path* with fresh tables between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    page = path.read_text()
    for name, build in TABLES[path].items():
        table = build()
        found = re.search(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", page, re.DOTALL)
        if found is None:
            raise ValueError(f"{path.name} has no mark <!-- {name} -->")
        page = page[: found.end(1)] + table + page[found.start(2) :]
    return page


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    for each in TABLES:
        each.write_text(rendered(each))
