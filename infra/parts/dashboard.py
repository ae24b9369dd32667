"""The dashboard of a stage: alarms, an overview, every metric of the feed, and AWS's metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra import prices
from infra.parts import measures
from infra.parts.alarms import Alarms
from infra.parts.apis import FeedHttpApi, FeedSocketApi
from infra.parts.function import TidingsFunction
from infra.parts.tables import Tables
from infra.settings import Stage
from tidings.core.metrics import METRICS, Metric

FULL_WIDTH, WIDTH, QUARTER = 24, 8, 6  # CloudWatch's grid has 24 columns
ERRORS = "Errors"
_OVERVIEW = {
    "Lag, pages": ("FollowerLag", "ConsumerLag", "RelayLag"),
    "Throughput": ("OperationsIngested", "FollowerPages", "FramesSent"),
    ERRORS: ("RequestsRejected", "FollowerFellOff", "ConnectionsClosed"),
}
_PER_SYNC = ("ExecutionsStarted", "ExecutionsSucceeded", "ExecutionsFailed")
_PER_FUNCTION = (("Invocations", "Sum"), ("Errors", "Sum"), ("Duration", "p99"))


class FeedDashboard(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        alarms: Alarms,
        functions: Sequence[TidingsFunction],
        tables: Tables,
        http: FeedHttpApi,
        sockets: FeedSocketApi,
        syncs: str,
    ) -> None:
        super().__init__(scope, name)
        # Dashboards belong to an account, not a Region.
        called = f"tidings-{stage.name}-{cdk.Aws.REGION}"
        board = cloudwatch.Dashboard(self, "Board", dashboard_name=called)
        board.add_widgets(
            cloudwatch.AlarmStatusWidget(alarms=alarms.made, width=FULL_WIDTH, title="Alarms")
        )
        messages = sockets.deployed.metric("MessageCount", statistic="Sum", period=measures.PERIOD)
        requests = http.api.metric_count(period=measures.PERIOD)
        apis = ((requests, prices.HTTP_REQUEST), (messages, prices.MESSAGE))
        board.add_widgets(
            *_overview(stage, http), _cost(measures.per_million(stage, functions, tables, apis))
        )
        board.add_widgets(*[_metric(metric, stage) for metric in METRICS])
        board.add_widgets(*[_functions(*each, functions) for each in _PER_FUNCTION])
        board.add_widgets(_syncs(syncs))


def _overview(stage: Stage, http: FeedHttpApi) -> Iterator[cloudwatch.GraphWidget]:
    for title, names in _OVERVIEW.items():
        left: list[cloudwatch.IMetric] = [measures.of_feed(name, stage) for name in names]
        if title == ERRORS:
            left.append(http.api.metric_server_error(period=measures.PERIOD))
        yield cloudwatch.GraphWidget(title=title, left=left, width=QUARTER)


def _cost(dollars: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    title = f"Cost of a million operations, at list prices of {prices.DATE}"
    return cloudwatch.GraphWidget(title=title, left=[dollars], width=QUARTER)


def _metric(metric: Metric, stage: Stage) -> cloudwatch.GraphWidget:
    measured = measures.of_feed(metric.name, stage)
    title = f"{metric.name}: {metric.meaning}"
    return cloudwatch.GraphWidget(title=title, left=[measured], width=WIDTH)


def _functions(
    name: str, statistic: str, functions: Sequence[TidingsFunction]
) -> cloudwatch.GraphWidget:
    series = [
        measures.of_function(name, each.function.function_name, statistic=statistic)
        for each in functions
    ]
    return cloudwatch.GraphWidget(title=f"{name} ({statistic})", left=list(series), width=WIDTH)


def _syncs(machine: str) -> cloudwatch.GraphWidget:
    series = [measures.of_machine(name, machine) for name in _PER_SYNC]
    return cloudwatch.GraphWidget(title="Syncs", left=list(series), width=WIDTH)
