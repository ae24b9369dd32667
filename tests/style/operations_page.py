"""The tables of docs/operations/OPERATIONS.md and MONITORING.md, as the code has them.

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

PAGE = ROOT / "docs/operations/OPERATIONS.md"
MONITORING = ROOT / "docs/operations/MONITORING.md"


def settings() -> str:
    rows = [(f"`{each.variable}`", _default(each.default), each.meaning) for each in SETTINGS]
    return _table(("variable", "default", "meaning"), rows)


def metrics() -> str:
    rows = [(f"`{each.name}`", each.unit, each.meaning) for each in METRICS]
    return _table((f"metric (namespace `{METRICS_NAMESPACE}`)", "unit", "meaning"), rows)


def server_metrics() -> str:
    return _table(("metric", "type", "labels", "meaning"), reference.server_metrics())


TABLES = {
    PAGE: {"settings": settings, "metrics": metrics},
    MONITORING: {"server-metrics": server_metrics},
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


def _default(default: str | None) -> str:
    if default is None:
        return "required"
    return f"`{default}`" if default else "empty"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    for each in TABLES:
        each.write_text(rendered(each))
