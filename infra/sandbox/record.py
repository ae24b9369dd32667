"""What is kept of a run on this machine, so that one that was killed is gone on with."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra import settings
from infra.paths import BUILD
from infra.sandbox.steps import Outcome, Result

FOLDER = BUILD / "sandbox"
EXPIRES_H = 4  # three times what a run takes
_FILE = "run.json"
_BYTES = 3  # of a name: a few sandboxes in an account never meet


class NoRun(Exception):
    """There is no run of that name on this machine."""


@dataclass(slots=True)
class Record:
    """
    One run. *place*, *account* and *region* are where; *dollars* what it was said to cost at most.

    *results* by step; *facts* are what steps told each other.
    """

    run: str
    place: str
    account: str
    region: str
    began: str
    expires: str
    options: Mapping[str, Any]
    dollars: float = 0.0
    results: dict[str, Result] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        return f"{settings.SANDBOX}{self.run}"

    @property
    def folder(self) -> Path:
        return FOLDER / self.run

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        written = self.folder / f"{_FILE}.new"
        written.write_text(json.dumps(asdict(self), indent=1))
        written.replace(self.folder / _FILE)  # one that is killed here leaves the old one


def begun(place: str, account: str, region: str, options: Mapping[str, Any]) -> Record:
    """A run with a name of its own."""
    now = datetime.now(UTC)
    moments = (now, now + timedelta(hours=EXPIRES_H))
    began, expires = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in moments)
    return Record(secrets.token_hex(_BYTES), place, account, region, began, expires, options)


def read(run: str) -> Record:
    """
    Raises:
        NoRun: there is none called *run*.
    """
    path = FOLDER / run / _FILE
    if not path.is_file():
        raise NoRun(f"there is no run {run!r} in {FOLDER}")
    kept = json.loads(path.read_text())
    results = {
        name: Result(**each | {"outcome": Outcome(each["outcome"])})
        for name, each in kept.pop("results").items()
    }
    return Record(**kept, results=results)
