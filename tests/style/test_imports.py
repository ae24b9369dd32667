"""The allowed imports; the contracts themselves are in pyproject.toml (`lint-imports`)."""

from __future__ import annotations

import ast
import sys
import tomllib

from tests.style import source
from tests.style.source import ROOT

LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def imported(module: source.Module) -> set[str]:
    """Return the first names of everything *module* imports, within functions too."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_the_core_needs_nothing() -> None:
    """But itself and the standard library, of which it reads no clock, no environment and no
    randomness. One module needs a parser that may be missing, and one function imports that module.
    """
    for module in source.modules("src/tidings/core"):
        outside = imported(module) - {"__future__", "tidings"}
        if module.name == "src/tidings/core/model/typed.py":
            outside -= {"msgspec"}
        assert outside <= sys.stdlib_module_names, module.name
        assert not outside & {"os", "time", "random", "secrets", "uuid", "socket"}, module.name


def test_the_contracts_know_every_part() -> None:
    """A new handler has to be listed, or nothing is checked for it."""
    (independent,) = (
        contract for contract in LINTER["contracts"] if contract["type"] == "independence"
    )
    handlers = {f"functions.{path.parent.name}" for path in ROOT.glob("functions/*/handler.py")}
    assert set(independent["modules"]) == handlers


def test_the_environment_is_read_in_one_place() -> None:
    """By the settings; ruff bans it elsewhere but for the lines that say why."""
    reading = [
        module.name
        for module in source.modules(
            "src/tidings/core", "src/tidings/http", "src/tidings/aws", "functions"
        )
        if "os.environ" in module.text
    ]
    assert reading == ["src/tidings/aws/config/settings.py"]
