"""The suite of Durable Streams for servers (npm `@durable-streams/server-conformance-tests`).

Its own runner, Vitest, runs it. Results are counted by category; a case may only fail if PROTOCOL
21.9 leaves out what it tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.world import installing

PROTOCOL = installing.ROOT / "docs" / "PROTOCOL.md"
# The time of a case; Vitest's own 5 s are shorter than our long poll, which some cases wait for.
CASE_MS = 120_000
# The omitted cases, by the name of a category or a case.
LEFT_OUT = {re.compile(r"^Fork - "): "forks", re.compile(r"TTL|Expires-At"): "time to live"}


class NoSuite(Exception):
    """The suite did not run; the message is what was said."""


@dataclass(frozen=True)
class Case:
    category: str
    title: str
    status: str  # passed, failed or skipped

    @property
    def reason(self) -> str:
        """Return the reason why it is left out; empty if it is not."""
        name = f"{self.category} > {self.title}"
        return next((why for pattern, why in LEFT_OUT.items() if pattern.search(name)), "")


def run(url: str, report: Path) -> list[Case]:
    """Run the cases against the feed at *url*, and write Vitest's *report*.

    Raises:
        NoSuite: it did not run.
    """
    folder = installing.node_folder()
    vitest = str(folder / "node_modules" / ".bin" / "vitest")
    options = ["--reporter=json", f"--outputFile={report}", f"--testTimeout={CASE_MS}"]
    options.append(
        "--retry=2"
    )  # some cases have a time limit of their own, short for a busy machine
    done = subprocess.run(
        [vitest, "run", "suite.test.mjs", *options],
        cwd=folder,
        env={**os.environ, "CONFORMANCE_TEST_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if not report.is_file():
        raise NoSuite(done.stdout)
    return cases(json.loads(report.read_text()))


def cases(report: Mapping[str, Any]) -> list[Case]:
    """Return the cases of a report of Vitest."""
    return [
        Case(each["ancestorTitles"][0], each["title"], each["status"])
        for file in report["testResults"]
        for each in file["assertionResults"]
    ]


def unexplained(found: Sequence[Case]) -> list[Case]:
    """Return the cases that fail without a reason in `LEFT_OUT`."""
    return [each for each in found if each.status == "failed" and not each.reason]


def table(found: Sequence[Case]) -> str:
    """Return the figures by category, as in PROTOCOL."""
    lines = ["| category | cases | pass | left out |", "|---|---|---|---|"]
    for category in dict.fromkeys(each.category for each in found):
        lines.append(_row(category, [each for each in found if each.category == category]))
    return "\n".join([*lines, _row("all", found)])


def _row(name: str, of: Sequence[Case]) -> str:
    passed = sum(each.status == "passed" for each in of)
    skipped = sum(each.status == "skipped" for each in of)
    reasons = [each.reason for each in of if each.status == "failed"]
    why = [f"{reason}: {reasons.count(reason)}" for reason in dict.fromkeys(reasons) if reason]
    if skipped:
        why.append(f"not asked by the suite: {skipped}")
    return f"| {name} | {len(of)} | {passed} | {', '.join(why)} |"
