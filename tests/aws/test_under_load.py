"""A stage under load: deliveries, consumed units, and alarms, canaries and cold starts of AWS."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import httpx
import pytest

from infra import ROOT, cdk_cli, synth
from infra.sandbox import STREAMS_QUOTA
from tests.aws.stage import WAIT_S, Stage, run, until
from tests.aws.test_reading import Record
from tidings.aws.config import deployment
from tidings.aws.config.stages import EXPIRES_TAG, Account, data_stack_name, stack_name
from tidings.core import limits

MEASURED = ROOT / "bench" / "costs.json"  # what docs/operations/COSTS.md was computed of
COSTLY = 1.25  # times what COSTS.md says: then it promises too little
_PERIOD_S = 60  # of DynamoDB's and Lambda's metrics
_METRICS_S = 240  # until the last minute of a load is in CloudWatch
_POLLS_PER_S = 4  # of a stream's shard: pages that come faster share a run
_STREAM_READS = 5  # strong reads a second of a stream that waits, as COSTS.md counts them
_SSE = 4  # of the eight consumers of `bench.load`
_SWEEP_S = 60
_FOLLOWERS = ("ingest", "follow-state", "follow-push")
_CANARY_S = 300  # the new version gets a tenth of the calls (infra.parts.function)
_UPDATE_S = 240  # of CloudFormation around it
_CANARY_RATE = 5  # operations a second: each function that is tried is called all the while
_COLD = "{ $.record.metrics.initDurationMs > 0 }"
_ALARMING = ("Failures", "RecursiveInvocationsDropped")
_BACKLOG_S = 220
_OPERATIONS = 1000  # of a request
_POSTING = 8  # requests at once: faster than a follower takes them
_BACKLOG_MAX = 60  # pages; above it producers wait, so that the drill costs what its time costs
_STALL_MAX_S = 45  # a follower that a guard has ended waits for the sweep, a minute
_DRAINED_S = 300
_GUARDED_S = 16 * limits.FOLLOW_RUN_MS / 1000  # sixteen consecutive calls of the longest run

Metric = tuple[str, str, str, str]  # namespace, name, and its dimension's name and value


@dataclass(frozen=True, slots=True)
class Load:
    """*report* is what `bench.load` measured between *began* and *ended*."""

    began: datetime
    ended: datetime
    report: Any


@pytest.fixture(scope="module")
def load(stage: Stage, request: pytest.FixtureRequest) -> Load:
    """The load that the tests of this module look at."""
    option, began = request.config.getoption, datetime.now(UTC)
    report = _load(stage, option("load_seconds"), option("load_rate"))
    return Load(began, datetime.now(UTC), report)


def _load(stage: Stage, seconds: float, rate: float) -> Any:
    """Run `bench.load`; it ends with 1 if a promise was broken."""
    where = (f"--url={stage.addresses.feed}", f"--stream-url={stage.addresses.stream}")
    asked = (f"--ws-url={stage.addresses.sockets}", f"--duration={seconds}", f"--rate={rate}")
    few = Account(stage.client).concurrency().quota < STREAMS_QUOTA
    by = ("--transport=ws",) if few else ()
    command = [sys.executable, "-m", "bench.load", *where, *asked, *by, "--json"]
    printed = run(command, fine=(0, 1)).splitlines()
    assert printed, "bench.load could not run: is the feed open?"
    return json.loads(printed[-1])


def _check(report: Any, record: Record) -> None:
    for kind, spread in report["latency_s"].items():
        for share in ("p50", "p99", "max") if spread else ():
            record(f"{kind}, {share}, ms", round(spread[share] * 1000))
    for name in ("acknowledged", "heard", "retries"):
        record(name, report["counts"][name])
    assert report["violations"]["count"] == 0, report["violations"]["first"][:5]


@pytest.mark.timeout(3600)
def test_each_consumer_receives_each_operation_once_in_order(
    load: Load, record_property: Record
) -> None:
    _check(load.report, record_property)


@pytest.mark.timeout(3600)
def test_a_load_consumes_the_units_and_calls_of_the_cost_page(
    stage: Stage, load: Load, record_property: Record
) -> None:
    stage.require_aws("the emulator has no metrics of tables and functions")
    time.sleep(max(0.0, _METRICS_S - (datetime.now(UTC) - load.ended).total_seconds()))
    counted = _counted(stage, load.began, load.ended)
    seconds = (load.ended - load.began).total_seconds()
    expected = _expected(load.report["counts"]["acknowledged"], seconds)
    for what, wanted in expected.items():
        record_property(what, f"{counted[what]:,.0f}, expected {wanted:,.0f}")
    for each in _FOLLOWERS:
        spent = counted[f"ms of {each}"] / max(counted[f"calls of {each}"], 1)
        record_property(f"ms of a call of {each}", round(spent))
    assert counted["write units"]
    assert [what for what, each in expected.items() if counted[what] > each * COSTLY] == []


def _expected(posts: int, seconds: float) -> dict[str, float]:
    """Return units and calls of *posts* of one operation each, as COSTS.md counts them.

    Pages that come faster than the stream is polled share a run of each follower.
    """
    used: Mapping[str, Mapping[str, float]] = json.loads(MEASURED.read_text())["used"]
    post, state = used["post of 1"], used["follow-state, a page of 1"]
    push, sweep = used["push of a page of 1 to 25"], used["sweep, idle"]
    runs = min(float(posts), _POLLS_PER_S * seconds)
    writes = post["writes"] * posts + (state["writes"] + push["writes"]) * runs + (posts - runs)
    reads = post["reads"] * posts + (state["reads"] + push["reads"]) * runs
    idle = sweep["reads"] * seconds / _SWEEP_S + _STREAM_READS * _SSE * seconds
    return {
        "write units": writes,
        "read units": reads + idle,
        "calls of ingest": float(posts),
        "calls of follow-state": runs,
        "calls of follow-push": runs,
    }


def _counted(stage: Stage, began: datetime, ended: datetime) -> dict[str, float]:
    """Return sums of CloudWatch over the minutes of the load."""
    parts = stage.resources(data_stack_name(stage.name)).values()
    tables = [name for kind, name in parts if kind == "AWS::DynamoDB::Table"]
    asked: dict[str, list[Metric]] = {
        f"{kind} units": [
            ("AWS/DynamoDB", f"Consumed{kind.title()}CapacityUnits", "TableName", each)
            for each in tables
        ]
        for kind in ("write", "read")
    }
    for function in _FOLLOWERS:
        called = stage.named(function)
        asked[f"calls of {function}"] = [("AWS/Lambda", "Invocations", "FunctionName", called)]
        asked[f"ms of {function}"] = [("AWS/Lambda", "Duration", "FunctionName", called)]
    return _sums(stage, asked, began, ended)


def _sums(
    stage: Stage, asked: Mapping[str, list[Metric]], began: datetime, ended: datetime
) -> dict[str, float]:
    queries: list[dict[str, Any]] = []
    owners: dict[str, str] = {}
    for what, metrics in asked.items():
        for namespace, name, dimension, value in metrics:
            query = f"m{len(queries)}"
            owners[query] = what
            dimensions = [{"Name": dimension, "Value": value}]
            metric = {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions}
            stat = {"Metric": metric, "Period": _PERIOD_S, "Stat": "Sum"}
            queries.append({"Id": query, "MetricStat": stat})
    minute = timedelta(seconds=_PERIOD_S)
    window = {"StartTime": began - minute, "EndTime": ended + minute}
    sums: defaultdict[str, float] = defaultdict(float)
    pages = stage.client("cloudwatch").get_paginator("get_metric_data")
    for page in pages.paginate(MetricDataQueries=queries, **window):
        for each in page["MetricDataResults"]:
            sums[owners[each["Id"]]] += sum(each["Values"])
    return sums


@pytest.mark.timeout(1800)
def test_lambda_does_not_end_followers_that_call_themselves_for_minutes(
    stage: Stage, record_property: Record
) -> None:
    stage.require_aws("the emulator guards no function, so a backlog shows nothing there")
    from infra.parts.function import CIRCLING  # loads the CDK

    functions, began, progress = stage.client("lambda"), datetime.now(UTC), Progress()
    for name in CIRCLING:
        found = functions.get_function_recursion_config(FunctionName=stage.named(name))
        assert found["RecursiveLoop"] == "Allow", name
    until_s = time.monotonic() + _BACKLOG_S
    with ThreadPoolExecutor(_POSTING) as workers:
        while time.monotonic() < until_s:
            if progress.lag < _BACKLOG_MAX:
                list(workers.map(lambda _: stage.post(_many()), range(_POSTING)))
            time.sleep(1)
            progress.observe(stage)
    until(lambda: progress.observe(stage) <= 1, _DRAINED_S, "the end of the backlog", 1)
    record_property("seconds behind without a break", round(progress.behind_s))
    record_property("longest time without progress, s", round(progress.stood_s))
    assert sum(_dropped(stage, name, began) for name in CIRCLING) == 0
    assert progress.stood_s <= _STALL_MAX_S
    if progress.behind_s < _GUARDED_S:
        pytest.skip(f"the backlog ended before {_GUARDED_S:.0f} s, when the guard would act")


class Progress:
    """How the state follows the log: *lag* is in pages.

    *behind_s* is the longest time behind without a break, *stood_s* the longest without progress.
    """

    def __init__(self) -> None:
        self.lag = 0
        self.behind_s = self.stood_s = 0.0
        self._behind: float | None = None
        self._at, self._since = -1, 0.0

    def observe(self, stage: Stage) -> int:
        """Ask the feed for its status; return the lag."""
        report = httpx.get(f"{stage.addresses.feed}/status", timeout=WAIT_S).json()
        state = next(each for each in report["followers"] if each["name"] == "state")
        self.lag, now_s = int(state["lag_pages"]), time.monotonic()
        if self.lag <= 1:
            self._behind = None
        elif self._behind is None:
            self._behind = self._since = now_s
        if state["checkpoint"] != self._at:
            self._at, self._since = state["checkpoint"], now_s
        if self._behind is not None:
            self.behind_s = max(self.behind_s, now_s - self._behind)
            self.stood_s = max(self.stood_s, now_s - self._since)
        return self.lag


def _dropped(stage: Stage, function: str, since: datetime) -> float:
    found = stage.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/Lambda",
        MetricName="RecursiveInvocationsDropped",
        Dimensions=[{"Name": "FunctionName", "Value": stage.named(function)}],
        StartTime=since - timedelta(minutes=1),
        EndTime=datetime.now(UTC) + timedelta(minutes=1),
        Period=60,
        Statistics=["Sum"],
    )
    return float(sum(each["Sum"] for each in found["Datapoints"]))


def _many() -> list[dict[str, Any]]:
    """Build operations on objects of their own, so that each is a write of the state."""
    some = uuid4().hex[:8]
    return [{"event": "insert", "type": "drill", "id": f"{some}-{at}"} for at in range(_OPERATIONS)]


@pytest.mark.timeout(3600)
def test_another_version_replaces_the_first_by_canaries_without_loss(
    stage: Stage, tmp_path: Path, record_property: Record
) -> None:
    stage.require_aws("the emulator knows no CodeDeploy")
    stacks = stage.client("cloudformation").describe_stacks(StackName=stack_name(stage.name))
    tags = {each["Key"]: each["Value"] for each in stacks["Stacks"][0]["Tags"]}
    assembly = tmp_path / "assembly"
    synth.synth(assembly, stage=stage.name, expires=tags[EXPIRES_TAG], release="2")
    with ThreadPoolExecutor(1) as workers:
        report = workers.submit(_load, stage, _CANARY_S + _UPDATE_S, _CANARY_RATE)
        cdk_cli.Cdk(assembly, {}).deploy(stack_name(stage.name), exclusively=True)
        _check(report.result(), record_property)
    statuses = Counter(_deployments(stage))
    assert set(statuses) == {"Succeeded"}, statuses


def _deployments(stage: Stage) -> Iterator[str]:
    """Yield the status of each deployment that CodeDeploy knows."""
    deploys = stage.client("codedeploy")
    parts = stage.resources(stack_name(stage.name)).values()
    (application,) = (name for kind, name in parts if kind == "AWS::CodeDeploy::Application")
    for kind, group in parts:
        if kind == "AWS::CodeDeploy::DeploymentGroup":
            asked = {"applicationName": application, "deploymentGroupName": group}
            for each in deploys.list_deployments(**asked)["deployments"]:
                yield deploys.get_deployment(deploymentId=each)["deploymentInfo"]["status"]


def test_cold_starts_are_in_the_log(stage: Stage, record_property: Record) -> None:
    stage.require_aws("only Lambda's own line of the call has it")
    since, seen = datetime.now(UTC) - timedelta(days=1), 0
    for each in deployment.FUNCTIONS:
        calls = stage.calls(each.name, since, _COLD)
        starts = [float(call["initDurationMs"]) for call in calls]
        if starts:
            spread = f"median {median(starts):,.0f} ms, maximum {max(starts):,.0f} ms"
            record_property(f"{each.name}, {each.memory_mb} MB", f"{len(starts)}: {spread}")
        seen += len(starts)
    assert seen


def test_no_alarm_of_failures_was_on(stage: Stage, record_property: Record) -> None:
    stage.require_aws("the emulator has no metrics of tables and functions")
    parts = stage.resources(stack_name(stage.name)).items()
    alarms = {name: each for name, (kind, each) in parts if kind == "AWS::CloudWatch::Alarm"}
    assert alarms
    pages = stage.client("cloudwatch").get_paginator("describe_alarm_history")
    on: Counter[str] = Counter()
    for name, alarm in alarms.items():
        for page in pages.paginate(AlarmName=alarm, HistoryItemType="StateUpdate"):
            changes = (json.loads(each["HistoryData"]) for each in page["AlarmHistoryItems"])
            on[name] += sum(
                each.get("newState", {}).get("stateValue") == "ALARM" for each in changes
            )
    record_property("alarms that were on", ", ".join(+on) or "none")
    assert [name for name in +on if any(each in name for each in _ALARMING)] == []
