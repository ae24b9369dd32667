"""
What of a stage is billed although nothing happens, read off its template.

`bench.bill` makes dollars of it, for docs/operations/COSTS.md and for the test that holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MONTH_S = 730 * 3600  # hours of an average month, as AWS reckons
FINE_S = 60  # an alarm that looks more often is billed three times
FINE = 3
_RATE = re.compile(r"rate\((\d+) minutes?\)")

Resources = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    *alarms* by the metrics that they look at, as they are billed. *snapshots_mb* is the memory of
    functions that start from one, kept for their one version. *runs* are those of functions that a
    schedule calls, in a month.
    """

    alarms: int
    composites: int
    dashboards: int
    keys: int
    snapshots_mb: int
    runs: Mapping[str, int]


def of_template(resources: Resources, prefix: str) -> Standing:
    """*prefix* is what the names of the stage's functions begin with."""
    return Standing(
        alarms=sum(map(_metrics, _of(resources, "AWS::CloudWatch::Alarm"))),
        composites=len(list(_of(resources, "AWS::CloudWatch::CompositeAlarm"))),
        dashboards=len(list(_of(resources, "AWS::CloudWatch::Dashboard"))),
        keys=len(list(_of(resources, "AWS::KMS::Key"))),
        snapshots_mb=sum(map(_snapshot_mb, _of(resources, "AWS::Lambda::Function"))),
        runs=dict(_runs(resources, prefix)),
    )


def _of(resources: Resources, kind: str) -> Iterator[Mapping[str, Any]]:
    return (each.get("Properties", {}) for each in resources.values() if each["Type"] == kind)


def _metrics(alarm: Mapping[str, Any]) -> int:
    """Each metric of an expression is billed as an alarm of its own."""
    if "Metrics" not in alarm:
        return FINE if alarm["Period"] < FINE_S else 1
    stats = [each["MetricStat"] for each in alarm["Metrics"] if "MetricStat" in each]
    return sum(FINE if each["Period"] < FINE_S else 1 for each in stats)


def _snapshot_mb(function: Mapping[str, Any]) -> int:
    """The version before is deleted with its snapshot as soon as an update has ended well."""
    kept = function.get("SnapStart", {}).get("ApplyOn") == "PublishedVersions"
    return int(function["MemorySize"]) if kept else 0


def _runs(resources: Resources, prefix: str) -> Iterator[tuple[str, int]]:
    """
    Of a rate; who is called by a date has work to do then, and is not idle.

    Raises:
        KeyError: a schedule calls what is no function of the stage.
    """
    for schedule in _of(resources, "AWS::Scheduler::Schedule"):
        if rate := _RATE.fullmatch(schedule["ScheduleExpression"]):
            alias = resources[schedule["Target"]["Arn"]["Ref"]]["Properties"]
            called = resources[alias["FunctionName"]["Ref"]]["Properties"]
            name = called["FunctionName"].removeprefix(prefix)
            yield name, MONTH_S // (int(rate[1]) * 60)
