"""The lines of each package stay within `budgets.toml`, which a new feature raises."""

from __future__ import annotations

import tomllib
from collections import Counter

from tests.style.source import ROOT, modules

FOLDERS = {"src/tidings": 3, "functions": 1, "infra": 1, "tests": 2, "bench": 1}  # parts of a name


def lines_of_packages() -> Counter[str]:
    lines = Counter[str]()
    for folder, parts in FOLDERS.items():
        for module in modules(folder):
            package = "/".join(module.path.parent.relative_to(ROOT).parts[:parts])
            lines[package] += len(module.text.splitlines())
    return lines


def test_no_package_is_larger_than_its_budget() -> None:
    budgets = tomllib.loads((ROOT / "tests/style/budgets.toml").read_text())["lines"]
    over = {
        package: f"{lines} of {budgets.get(package, 0)}"
        for package, lines in lines_of_packages().items()
        if lines > budgets.get(package, 0)
    }
    assert not over
