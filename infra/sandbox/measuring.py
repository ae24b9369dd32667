"""Steps that ask CloudWatch what the stage did: cold starts, units, alarms."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from tidings.aws.config import deployment
from tidings.aws.config.stages import data_stack_name, settings_of, stack_name

from infra import remains
from infra.paths import ROOT
from infra.sandbox import deploying
from infra.sandbox.ground import Ground
from infra.sandbox.steps import CouldNot, Figures, NotSo

MEASURED = ROOT / "bench" / "costs.json"  # what docs/operations/COSTS.md was computed of
COSTLY = 1.25  # times what COSTS.md says: then it promises too little
_PERIOD_S = 60  # of DynamoDB's and Lambda's metrics
_METRICS_S = 240  # until the last minute of a load is in CloudWatch
_POLLS_PER_S = 4  # of a stream's shard: pages that come faster share a run
_STREAM_READS = 5  # strong reads a second of a stream that waits, as COSTS.md counts them
_SSE = 4  # of the eight consumers of `bench.load`
_SWEEP_READS, _SWEEP_S = "sweep, idle", 60
_CALL = '{ $.type = "platform.report" }'
_COLD = "{ $.record.metrics.initDurationMs > 0 }"
_ALARM = "AWS::CloudWatch::Alarm"
_ALARMING = ("Failures", "RecursiveInvocationsDropped")

_Metric = tuple[str, str, str, str]  # namespace, name, and its dimension's name and value


def calls_of(ground: Ground, function: str, since: datetime) -> list[dict[str, Any]]:
    """Lambda's records of the calls of *function* that ended since then."""
    return list(_records(ground, function, _CALL, since))


def _records(
    ground: Ground, function: str, pattern: str, since: datetime
) -> Iterator[dict[str, Any]]:
    pages = ground.client("logs").get_paginator("filter_log_events")
    asked = {
        "logGroupName": f"/aws/lambda/{ground.named(function)}",
        "filterPattern": pattern,
        "startTime": int(since.timestamp() * 1000),
    }
    for page in pages.paginate(**asked):
        for event in page["events"]:
            record = json.loads(event["message"]).get("record", {})
            if "metrics" in record:
                yield record


def cold_starts(ground: Ground) -> Figures:
    """How long each function took until it could be called, as Lambda's REPORT lines say."""
    since = datetime.now(UTC) - timedelta(days=1)
    found = {}
    for each in deployment.FUNCTIONS:
        starts = [
            float(record["metrics"]["initDurationMs"])
            for record in _records(ground, each.name, _COLD, since)
            if "initDurationMs" in record["metrics"]
        ]
        if starts:
            spread = f"median {median(starts):,.0f} ms, most {max(starts):,.0f} ms"
            found[f"{each.name}, {each.memory_mb} MB"] = f"{len(starts)} starts: {spread}"
    if not found:
        raise CouldNot("no function has a line of Lambda's with the time of its start")
    return found


def load(ground: Ground) -> Figures:
    """A load of ten minutes, and when it was, for `units`."""
    began = datetime.now(UTC)
    figures = deploying.load(ground, ground.options.load_s, ground.options.rate)
    ground.facts["load"] = {
        "began": began.isoformat(),
        "ended": datetime.now(UTC).isoformat(),
        "posts": int(figures["operations"]),
    }
    return figures


def units(ground: Ground) -> Figures:
    """What CloudWatch counted of the load, against what COSTS.md is computed of."""
    told = ground.facts["load"]
    began, ended = (datetime.fromisoformat(told[each]) for each in ("began", "ended"))
    since = (datetime.now(UTC) - ended).total_seconds()
    ground.sleep(max(0.0, _METRICS_S - since))
    counted = _counted(ground, began, ended)
    expected = of_load(told["posts"], (ended - began).total_seconds())
    if not counted["write units"]:
        raise CouldNot("CloudWatch has counted no unit of the tables yet")
    figures: dict[str, str | int | float] = {}
    for what, wanted in expected.items():
        ratio = counted[what] / wanted
        figures[what] = f"{counted[what]:,.0f}, COSTS.md {wanted:,.0f}: {ratio:.2f} times"
    figures |= _lasted(counted)
    dear = [what for what, wanted in expected.items() if counted[what] > wanted * COSTLY]
    if dear:
        raise NotSo(f"more than {COSTLY} times what COSTS.md says: {', '.join(dear)}", figures)
    return figures


def of_load(posts: int, seconds: float) -> dict[str, float]:
    """
    Units and calls of *posts* of one operation each within *seconds*, as COSTS.md counts them:
    pages that come faster than the stream is polled share a run of each follower.
    """
    used: Mapping[str, Mapping[str, float]] = json.loads(MEASURED.read_text())["used"]
    post, state, push = used["post of 1"], used["follow-state, a page of 1"], used[_PUSH]
    runs = min(float(posts), _POLLS_PER_S * seconds)
    sweeps = seconds / _SWEEP_S
    reads = post["reads"] * posts + (state["reads"] + push["reads"]) * runs
    return {
        "write units": post["writes"] * posts
        + (state["writes"] + push["writes"]) * runs
        + (posts - runs),
        "read units": reads + used[_SWEEP_READS]["reads"] * sweeps + _STREAM_READS * _SSE * seconds,
        "calls of ingest": float(posts),
        "calls of follow-state": runs,
        "calls of follow-push": runs,
    }


_PUSH = "push of a page of 1 to 25"


def _counted(ground: Ground, began: datetime, ended: datetime) -> dict[str, float]:
    """Sums over the minutes of the load; milliseconds of each function under its name."""
    tables = settings_of(ground.stage, ground.client("cloudformation"))
    parts = remains.parts(ground.place, data_stack_name(ground.stage)).values()
    names = [each.name for each in parts if each.kind == remains.TABLE]
    assert tables["TIDINGS_LOG_TABLE"] in names
    asked: dict[str, list[_Metric]] = {
        "write units": _of_tables(names, "ConsumedWriteCapacityUnits"),
        "read units": _of_tables(names, "ConsumedReadCapacityUnits"),
    }
    for function in ("ingest", "follow-state", "follow-push"):
        called = ground.named(function)
        asked[f"calls of {function}"] = [("AWS/Lambda", "Invocations", "FunctionName", called)]
        asked[f"ms of {function}"] = [("AWS/Lambda", "Duration", "FunctionName", called)]
    return _summed(ground, asked, began, ended)


def _of_tables(names: list[str], metric: str) -> list[_Metric]:
    return [("AWS/DynamoDB", metric, "TableName", each) for each in names]


def _summed(
    ground: Ground,
    asked: Mapping[str, list[_Metric]],
    began: datetime,
    ended: datetime,
) -> dict[str, float]:
    queries: list[Any] = []
    whose = {}
    for what, metrics in asked.items():
        for namespace, name, dimension, value in metrics:
            query = f"m{len(queries)}"
            whose[query] = what
            metric = {
                "Namespace": namespace,
                "MetricName": name,
                "Dimensions": [{"Name": dimension, "Value": value}],
            }
            stat = {"Metric": metric, "Period": _PERIOD_S, "Stat": "Sum"}
            queries.append({"Id": query, "MetricStat": stat})
    minute = timedelta(seconds=_PERIOD_S)
    window = {"StartTime": began - minute, "EndTime": ended + minute}
    sums: defaultdict[str, float] = defaultdict(float)
    pages = ground.client("cloudwatch").get_paginator("get_metric_data")
    for page in pages.paginate(MetricDataQueries=queries, **window):
        for each in page["MetricDataResults"]:
            sums[whose[each["Id"]]] += sum(each["Values"])
    return sums


def _lasted(counted: Mapping[str, float]) -> dict[str, str | int | float]:
    """What a call of each function took, on the average."""
    return {
        f"a call of {what.removeprefix('ms of ')}": f"{ms / calls:.0f} ms"
        for what, ms in counted.items()
        if what.startswith("ms of ") and (calls := counted[what.replace("ms", "calls", 1)])
    }


def alarms(ground: Ground) -> Figures:
    """Which alarms of the stage are on, and which were: of failures none."""
    watched = ground.client("cloudwatch")
    parts = remains.parts(ground.place, stack_name(ground.stage))
    there = {name: each.name for name, each in parts.items() if each.kind == _ALARM}
    if not there:
        raise NotSo("the stage has no alarm")
    was_on = {name: _rings(watched, alarm) for name, alarm in there.items()}
    figures: dict[str, str | int | float] = {"alarms": len(there)}
    figures |= {name: f"on {rings} times" for name, rings in was_on.items() if rings}
    bad = [name for name, rings in was_on.items() if rings and any(a in name for a in _ALARMING)]
    if bad:
        raise NotSo(f"something failed meanwhile: {', '.join(bad)}", figures)
    return figures


def _rings(watched: Any, name: str) -> int:
    pages = watched.get_paginator("describe_alarm_history")
    items = [
        json.loads(each["HistoryData"])
        for page in pages.paginate(AlarmName=name, HistoryItemType="StateUpdate")
        for each in page["AlarmHistoryItems"]
    ]
    return sum(each.get("newState", {}).get("stateValue") == "ALARM" for each in items)
