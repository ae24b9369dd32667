"""Lines of packages and parameters of classes stay within `budgets.toml`.

A new feature raises the lines of its packages.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter

from tests.style.source import ROOT, modules

PARAMETERS = 6
FOLDERS = {"src/tidings": 3, "functions": 1, "infra": 1, "tests": 2, "bench": 1}  # parts of a name


def lines_of_packages() -> Counter[str]:
    lines = Counter[str]()
    for folder, parts in FOLDERS.items():
        for module in modules(folder):
            package = "/".join(module.path.parent.relative_to(ROOT).parts[:parts])
            lines[package] += len(module.text.splitlines())
    return lines


def wide_classes() -> list[str]:
    """Return the classes that take more than `PARAMETERS` values when they are created."""
    found = []
    for module in modules("src/tidings"):
        for each in ast.walk(module.tree):
            if isinstance(each, ast.ClassDef) and _parameters(each) > PARAMETERS:
                found.append(f"{module.name} {each.name}")
    return found


def _parameters(of: ast.ClassDef) -> int:
    for each in of.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return len(each.args.args) + len(each.args.kwonlyargs) - 1
    if not any("dataclass" in ast.unparse(each) for each in of.decorator_list):
        return 0
    fields = (ast.unparse(each) for each in of.body if isinstance(each, ast.AnnAssign))
    return sum(
        not each.startswith("_") and "ClassVar" not in each and "init=False" not in each
        for each in fields
    )


def test_classes_with_many_parameters_become_fewer() -> None:
    """A service has at most six collaborators; records, options and public clients have more."""
    wide = tomllib.loads((ROOT / "tests/style/budgets.toml").read_text())["wide_classes"]
    assert len(wide_classes()) <= wide, wide_classes()


def test_no_package_is_larger_than_its_budget() -> None:
    budgets = tomllib.loads((ROOT / "tests/style/budgets.toml").read_text())["lines"]
    over = {
        package: f"{lines} of {budgets.get(package, 0)}"
        for package, lines in lines_of_packages().items()
        if lines > budgets.get(package, 0)
    }
    assert not over
