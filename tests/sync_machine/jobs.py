"""A job that does not compare anything: it leaves a plan, as `tidings.sync.stage` would."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from typing import Any

from tests.sync_machine.machine import BUCKET
from tests.unit.core.scene import line
from tidings.aws import clients
from tidings.core.model.operations import EVENTS, as_event
from tidings.core.sync import corrections
from tidings.core.sync.corrections import NOWHERE, Correction, correction

COUNTS = {"insert": "creates", "update": "updates", "delete": "deletes"}


def planned(event: str, *names: str) -> list[Correction]:
    return [correction(as_event(line(each, "insert"), event), NOWHERE) for each in names]


@dataclass
class Jobs:
    """The report and the files of the next job. *parts*: for each event, a list of parts."""

    parts: dict[str, list[list[Correction]]] = field(default_factory=dict)
    stopped: str | None = None
    allowable: bool = True
    through: int = 0
    failed: str | None = None
    started: list[dict[str, Any]] = field(default_factory=list)

    def arguments(self) -> list[str]:
        """Return the arguments of the one job."""
        (run,) = self.started
        found: list[str] = run["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
        return found

    def __call__(self, arguments: list[str]) -> int:
        plan = arguments[arguments.index("--plan") + 1].removeprefix(f"s3://{BUCKET}/")
        if self.failed is not None:
            _put(f"{plan}failure.json", json.dumps({"failed": self.failed}).encode())
            return 1
        for name, part in self._named().items():
            lines = "".join(f"{corrections.encode(each)}\n" for each in part)
            _put(plan + name, gzip.compress(lines.encode()))
        for folder in {name.partition("/")[0] for name in self._named()}:
            _put(f"{plan}{folder}/_SUCCESS", b"")
        _put(f"{plan}summary.json", json.dumps(self._summary()).encode())
        return 0

    def _named(self) -> dict[str, list[Correction]]:
        return {
            f"{EVENTS.index(event) + 1}-{event}/part-{number:05}.gz": part
            for event in EVENTS
            for number, part in enumerate(self.parts.get(event, []))
        }

    def _summary(self) -> dict[str, Any]:
        return {
            **{COUNTS[event]: sum(map(len, self.parts.get(event, []))) for event in EVENTS},
            "untouched": 0,
            "through": self.through,
            "stopped": self.stopped,
            "allowable": self.stopped is not None and self.allowable,
            "parts": [{"name": name} for name in self._named()],
        }


def _put(key: str, body: bytes) -> None:
    clients.objects().put_object(Bucket=BUCKET, Key=key, Body=body)
