"""
A twin amid an update: the last release answers half of the calls of each function, chosen at
random, this one the others, over the same tables.

    python -m tests.deploy.two_versions   # the conformance suite against it; options are pytest's
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidings.local.running import Twin
from tidings.local.store import dynamodb_local
from tidings.local.twin import CALLS

from infra import last_release
from infra.paths import ROOT
from tests.conformance.catalogue import cases
from tests.conformance.target import RESOURCES
from tests.deploy import suite

Calls = Mapping[str, Sequence[int]]  # by function: of this release, of the last one if it has it
# What each release keeps for itself and both together do not.
APART = {"16.5-size": "holds of one release: a reply has the field `ended` in this one alone"}
_LAW = "tests/conformance/test_conformance.py"


@contextmanager
def running(folder: Path) -> Iterator[Twin]:
    """The twin, whose logs and counts are in *folder*; its tables are in memory."""
    other = last_release.checkout(folder / "release")
    options = ["--leave", "--beside", str(other)]
    options += [part for each in RESOURCES for part in ("--resource", each)]
    (folder / "engine.log").touch()
    with asyncio.Runner() as runner:
        store = runner.run(dynamodb_local.start(port=0, data=None, log=folder / "engine.log"))
        try:
            with Twin(*options, "--endpoint-url", store.url, data=folder / "data") as twin:
                yield twin
        finally:
            runner.run(store.stop())


def calls(folder: Path) -> Calls:
    """How often each release was called, once the twin in *folder* has ended."""
    found: Calls = json.loads((folder / "data" / CALLS).read_text())
    return found


def main() -> None:
    then = suite.load()
    left_out = suite.left_out(cases(), then) | APART
    command = [sys.executable, "-m", "pytest", "-q", _LAW]
    command += [f"--deselect={_LAW}::test_law[server-{case}]" for case in left_out]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(folder) as twin:
            done = subprocess.run(
                [*command, f"--base-url={twin.url}", *sys.argv[1:]], cwd=ROOT, check=False
            )
        for function, counts in sorted(calls(folder).items()):
            sys.stdout.write(f"{function:16}{''.join(f'{count:7}' for count in counts)}\n")
    for case, reason in left_out.items():
        sys.stdout.write(f"left out: {case} {reason}\n")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
