"""No module imports in a circle, and in the core no package does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.style import source
from tests.style.source import ROOT

CORE = "tidings.core"
Graph = Mapping[str, set[str]]


def named(module: source.Module) -> tuple[str, bool]:
    """Return its dotted name, and True if it is a package."""
    parts = list(module.path.relative_to(ROOT).with_suffix("").parts)
    if "tidings" in parts:
        parts = parts[parts.index("tidings") :]
    package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if package else parts), package


def targets(node: ast.AST, name: str, *, package: bool) -> Iterator[tuple[str, str]]:
    """Yield each import of *node* as a module and, below it, a name that may be a module."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = name.split(".")
        above = parts[: len(parts) - node.level + package] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from ((base, alias.name) for alias in node.names)


def imports() -> Graph:
    """Return the imports of each module: for types, and within functions, too."""
    modules = {named(module): module for module in source.product()}
    names = {name for name, _ in modules}
    graph: dict[str, set[str]] = {}
    for (name, package), module in modules.items():
        found = graph.setdefault(name, set())
        for node in ast.walk(module.tree):
            for base, below in targets(node, name, package=package):
                full = f"{base}.{below}"
                found |= {full if full in names else base} & names - {name}
    return graph


def packages(graph: Graph) -> Graph:
    """Return the same for the packages of the core; other modules keep their names."""
    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        if not name.startswith(f"{CORE}."):
            continue
        own = ".".join(name.split(".")[:3])
        below = {".".join(other.split(".")[:3]) for other in others if other.startswith(CORE)}
        found.setdefault(own, set()).update(below - {own, CORE})
    return found


def circle(graph: Graph) -> list[str]:
    """Return the modules of one circle, each of which imports the next; empty without a circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_modules_do_not_import_in_a_circle() -> None:
    """A reader can begin with the imports of a module, and they come to an end."""
    graph = imports()

    assert len(graph) > 300
    assert circle(graph) == []


def test_packages_of_the_core_do_not_import_in_a_circle() -> None:
    """A capability imports others, and none of them imports it."""
    graph = packages(imports())

    assert len(graph) > 15
    assert circle(graph) == []
