"""Measure the import of each handler, and what its declared routes add at their first request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.results import Section
from tidings.aws.config import deployment
from tidings.aws.config.settings import SETTINGS
from tidings.http.routes import DECLARED
from tidings.http.wire import Routes

_ROOT = Path(__file__).parent.parent
_RUNS, _RUNS_MAX = 5, 25  # the minimum of 5 runs suffices below the target, or on a quiet machine
_TARGET = 1.3
_PROGRAM = """
import sys, time
started = time.process_time()
{first}
print(time.process_time() - started)
"""
# An endpoint, and the types of the parameters and bodies of all its routes. A first request needs
# only those of one route.
_DECLARED = """
from contextlib import suppress
from importlib import import_module
from tidings.core.errors import Rejected
endpoint = getattr(import_module({module!r}), {name!r})
for declared in endpoint.declared.values():
    for kind in declared.parameters.values():
        with suppress(Rejected):
            kind.parse({{}}, Rejected, "fields")
"""

ENDPOINTS: dict[str | None, list[type[Routes]]] = {
    function.folder: [
        each
        for each in DECLARED
        if each.function == function.name and any(r.function for r in each.declared.values())
    ]
    for function in deployment.FUNCTIONS
}


def _seconds(folder: str | None) -> float:
    """Return the CPU time of a handler, and of the types of its routes if it has declared some."""
    first = "import boto3" if folder is None else "import handler"
    for endpoint in ENDPOINTS.get(folder, ()):
        first += _DECLARED.format(module=endpoint.__module__, name=endpoint.__name__)
    told = {each.variable: each.default for each in SETTINGS}
    environment = {name: "x" if text is None else text for name, text in told.items()}
    path = ["src", f"functions/{folder}"]
    environment["PYTHONPATH"] = ":".join(str(_ROOT / part) for part in path)
    environment |= {"AWS_DEFAULT_REGION": "eu-west-1", "TIDINGS_ARCHIVE": "s3://bucket/archive"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(first=first)],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    return float(done.stdout)


def measure() -> Section:
    folders = sorted({function.folder for function in deployment.FUNCTIONS})
    taken: dict[str | None, list[float]] = {folder: [] for folder in [None, *folders]}
    measured = [*taken]
    for run in range(_RUNS_MAX):
        for folder in measured:  # in turn, so that a slow phase of the machine affects all of them
            taken[folder].append(_seconds(folder))
        best = {folder: min(times) for folder, times in taken.items()}
        bare = best.pop(None)
        slow = [folder for folder, seconds in best.items() if seconds > _TARGET * bare]
        if run + 1 >= _RUNS:
            measured = [None, *slow] if slow else []
    rows = [("import boto3", f"{bare * 1000:.0f} ms")]
    rows += [
        (f"functions/{folder}", f"{seconds * 1000:.0f} ms, {seconds / bare:.2f} times")
        for folder, seconds in best.items()
    ]
    return Section(
        "Import time of each handler",
        f"at most {_TARGET} times a bare `import boto3`",
        rows,
        met=not slow,
        notes=[
            f"CPU time, the best of {_RUNS} to {_RUNS_MAX} processes each, in turn, compiled; "
            "with the endpoints of declared routes, which are loaded when they are needed."
        ],
    )
