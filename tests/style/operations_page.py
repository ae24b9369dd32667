"""
The tables of docs/operations/OPERATIONS.md, as the code has them.

`python -m tests.style.operations_page` writes them into the page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.style.source import ROOT
from tidings.aws.config.settings import METRICS_NAMESPACE, SETTINGS
from tidings.core.metrics import METRICS

PAGE = ROOT / "docs/operations/OPERATIONS.md"


def settings() -> str:
    rows = [(f"`{each.variable}`", _default(each.default), each.meaning) for each in SETTINGS]
    return _table(("variable", "default", "meaning"), rows)


def metrics() -> str:
    rows = [(f"`{each.name}`", each.unit, each.meaning) for each in METRICS]
    return _table((f"metric (namespace `{METRICS_NAMESPACE}`)", "unit", "meaning"), rows)


def rendered(page: str) -> str:
    """
    *page* with fresh tables between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    for name, table in (("settings", settings()), ("metrics", metrics())):
        found = re.search(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", page, re.DOTALL)
        if found is None:
            raise ValueError(f"{PAGE.name} has no mark <!-- {name} -->")
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
    PAGE.write_text(rendered(PAGE.read_text()))
