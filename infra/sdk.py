"""
The AWS SDK as it is shipped: botocore, with what the functions ask of it, compiled for Lambda.

A layer is read-only, so what it holds uncompiled is compiled by every instance that starts.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from infra.paths import FUNCTIONS, PACKAGE

PYTHON = "3.13"  # of the functions
PLACE = "/opt/python"  # where Lambda has it, as tracebacks name it
_CODE = (PACKAGE / "aws", FUNCTIONS)


class UnknownClient(Exception):
    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"{path}:{line}: a client's service has to be a literal, to be shipped")


def services() -> tuple[str, ...]:
    """
    Of which the functions' code makes clients.

    Raises:
        UnknownClient: nobody can tell which one it would be.
    """
    paths = (path for folder in _CODE for path in sorted(folder.rglob("*.py")))
    return tuple(sorted({name for path in paths for name in clients(path)}))


def clients(path: Path) -> Iterator[str]:
    """The services that the module at *path* calls `create_client` for; see `services`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "create_client":
            continue
        service = node.args[0] if node.args else None
        if not (isinstance(service, ast.Constant) and isinstance(service.value, str)):
            raise UnknownClient(path, node.lineno)
        yield service.value


def prune(target: Path) -> None:
    """Leave *target* the descriptions of `services` alone, of some 440."""
    wanted = services()
    for folder in (target / "botocore" / "data").iterdir():
        if folder.is_dir() and folder.name not in wanted:
            shutil.rmtree(folder)


def compiler() -> str:
    """The path of a Python of the functions' version; empty where there is none."""
    candidates = (sys.executable, shutil.which(f"python{PYTHON}"))
    return next((path for each in candidates if each and (path := _path(each))), "")


def _path(program: str) -> str:
    """Of the Python behind *program*, if it runs and is of the version."""
    script = (
        f"import sys; print(sys.executable if '%d.%d' % sys.version_info[:2] == '{PYTHON}' else '')"
    )
    done = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def compile_all(target: Path, program: str) -> None:
    """Compile *target* by *program*; no time of a file is looked at, so the same bytes come out."""
    command = [program, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*command, "-s", str(target), "-p", PLACE, str(target)], check=True)
