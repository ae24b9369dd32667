"""
The suite of Durable Streams for servers (npm `@durable-streams/server-conformance-tests`).

It is fetched once into build/durable-streams, and run by its own runner, Vitest. What it says is
counted by its categories; each case that fails has to be of what PROTOCOL 21.9 leaves out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "durable-streams"
PROTOCOL = ROOT / "docs" / "PROTOCOL.md"
SUITE, VERSION = "@durable-streams/server-conformance-tests", "0.3.6"
VITEST = "4.1.12"
# Of a case; Vitest's own 5 s are shorter than our long poll, which some cases wait for.
CASE_MS = 40_000
_CASES = f"""import {{ runConformanceTests }} from "{SUITE}"
runConformanceTests({{ baseUrl: process.env.CONFORMANCE_TEST_URL }})
"""
# What is left out, by what a category or a case is called.
LEFT_OUT = {
    re.compile(r"^Fork - "): "forks",
    re.compile(r"TTL|Expires-At"): "time to live",
}


class NoSuite(Exception):
    """The suite did not run; the message is what was said."""


@dataclass(frozen=True)
class Case:
    category: str
    title: str
    status: str  # passed, failed or skipped

    @property
    def reason(self) -> str:
        """Why it is left out; empty where it is not."""
        name = f"{self.category} > {self.title}"
        return next((why for pattern, why in LEFT_OUT.items() if pattern.search(name)), "")


def run(url: str) -> list[Case]:
    """
    The cases, run against the feed at *url*.

    Raises:
        NoSuite: it cannot be fetched, or did not run.
    """
    _fetch()
    report = FOLDER / "report.json"
    report.unlink(missing_ok=True)
    (FOLDER / "suite.test.mjs").write_text(_CASES)
    vitest = str(FOLDER / "node_modules" / ".bin" / "vitest")
    options = ["--reporter=json", f"--outputFile={report}", f"--testTimeout={CASE_MS}"]
    said = _said([vitest, "run", "suite.test.mjs", *options], {"CONFORMANCE_TEST_URL": url})
    if not report.is_file():
        raise NoSuite(said)
    return cases(json.loads(report.read_text()))


def cases(report: Mapping[str, Any]) -> list[Case]:
    """Those of a report of Vitest."""
    return [
        Case(each["ancestorTitles"][0], each["title"], each["status"])
        for file in report["testResults"]
        for each in file["assertionResults"]
    ]


def unexplained(found: Sequence[Case]) -> list[Case]:
    """The cases that fail, and are not of what is left out."""
    return [each for each in found if each.status == "failed" and not each.reason]


def table(found: Sequence[Case]) -> str:
    """The figures by category, as PROTOCOL has them."""
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


def _fetch() -> None:
    package = FOLDER / "node_modules" / SUITE / "package.json"
    if package.is_file() and json.loads(package.read_text())["version"] == VERSION:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise NoSuite(
            "npm is needed to fetch the suite and is not on the PATH; it needs Node.js 20"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"]
    wanted = [f"{SUITE}@{VERSION}", f"vitest@{VITEST}"]
    said = _said([npm, "install", *quiet, "--prefix", str(FOLDER), *wanted], {})
    if not package.is_file():
        raise NoSuite(said)


def _said(command: Sequence[str], variables: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=FOLDER,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout
