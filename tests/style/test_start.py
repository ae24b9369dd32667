"""The budget of the modules that starts of the command line import; see bench/start.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.start import RUN, STARTS, environment

BUDGET = Path(__file__).parent / "imports.txt"
# Servers, AWS and Spark, which take a second; the one module is about the streams of a process.
HEAVY = {"boto3", "botocore", "pyspark", "pyarrow", "uvicorn", "msgspec"}
FORBIDDEN = ("tidings.aws", "tidings.server", "tidings.spark", "tidings.lake")
ALLOWED = {"tidings.server", "tidings.server.output"}
PROGRAM = """
import atexit, sys
def show():
    names = {name for name in sys.modules if name.startswith("tidings")}
    names |= {name.partition(".")[0] for name, module in sys.modules.items() if module}
    known = {*sys.stdlib_module_names, "__main__", "_distutils_hack"}
    print("modules:", *sorted(names - known), file=sys.stderr)
atexit.register(show)
"""


def imported(start: str) -> list[str]:
    """Return the modules of Tidings and the packages that *start* imports."""
    words, more = STARTS[start]
    command = [sys.executable, "-c", PROGRAM + RUN, *words]
    done = subprocess.run(command, env=environment(more), capture_output=True, text=True)
    assert done.stdout or "post" in start or "list" in start
    return done.stderr.rpartition("modules:")[2].split()


def test_a_start_imports_no_more_than_its_budget() -> None:
    """`RECORD=1` writes the budget again; each new module is a decision."""
    found = "".join(f"{start}: {' '.join(imported(start))}\n" for start in STARTS)
    if "RECORD" in os.environ:
        BUDGET.write_text(found)
    allowed = dict(line.split(": ", 1) for line in BUDGET.read_text().splitlines())

    for line in found.splitlines():
        start, modules = line.split(": ", 1)
        assert {*modules.split()} - {*allowed[start].split()} == set(), start


@pytest.mark.parametrize("start", STARTS)
def test_no_start_imports_a_server_aws_or_spark(start: str) -> None:
    modules = {*imported(start)} - ALLOWED

    assert "click" in modules
    assert modules & HEAVY == set()
    assert [each for each in modules if each.startswith(FORBIDDEN)] == []
