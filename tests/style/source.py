"""The source of the project, read once and parsed when a check needs it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CORE = ROOT / "src/tidings/core"
PRODUCT = ("src/tidings", "functions", "infra", "bench", "tests/fakes")
TESTS = "tests"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def name(self) -> str:
        """Its path from the root, as a person would say it."""
        return str(self.path.relative_to(ROOT))

    def functions(self) -> Iterator[Function]:
        """Yield every function and method, inner ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


def modules(*folders: str) -> list[Module]:
    """Return the modules below *folders*."""
    return [module for folder in folders for module in _below(folder)]


@cache
def _below(folder: str) -> list[Module]:
    return [Module(path, path.read_text()) for path in sorted((ROOT / folder).rglob("*.py"))]


def product() -> list[Module]:
    return modules(*PRODUCT)
