"""
What the last release promised, case by case: `suite.json`, a digest of each case of its suite.

While two releases serve one stage, it promises what both do. So a case is played there if the
release's own suite had it as it is now; `python -m tests.deploy` writes the digests anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from tests.conformance.catalogue import Case

FILE = Path(__file__).parent / "suite.json"
DIGITS = 12  # of a digest: two of some hundreds that are alike are unlikely by 1 in 10^9

# Verbs whose code asks for more than it did then, which no digest of a case shows.
STRICTER = {"well_formed": "asks for the field `retry` of a stream's first event"}


def digest(case: Case) -> str:
    """Of what is done and expected, whatever the words about it."""
    played = [case.steps, case.transport, case.writes_nothing, dict(case.row)]
    return sha256(json.dumps(played, sort_keys=True, default=str).encode()).hexdigest()[:DIGITS]


def keep(version: str, cases: Iterable[Case], into: Path = FILE) -> None:
    """Write the reference anew."""
    kept = {"version": version, "cases": {case.id: digest(case) for case in cases}}
    into.write_text(json.dumps(kept, indent=0) + "\n")


def load(file: Path = FILE) -> Mapping[str, str]:
    """Digests of the release's cases, by their ids."""
    found: dict[str, str] = json.loads(file.read_text())["cases"]
    return found


def left_out(cases: Iterable[Case], then: Mapping[str, str]) -> dict[str, str]:
    """The ids of *cases* that the release does not promise, and why not."""
    return {case.id: reason for case in cases if (reason := _reason(case, then))}


def _reason(case: Case, then: Mapping[str, str]) -> str | None:
    if case.id not in then:
        return "is new"
    if then[case.id] != digest(case):
        return "asks for something else"
    return next((STRICTER[verb] for verb, _ in case.steps if verb in STRICTER), None)
