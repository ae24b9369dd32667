"""The CloudWatch metrics of alarms and dashboards, and a metric of the cost of operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from infra import prices
from infra.parts import logs
from infra.parts.function import StreamSource, TidingsFunction, memory_mb
from infra.parts.tables import Tables
from infra.prices import Price
from infra.settings import Stage
from tidings.aws.config import settings
from tidings.core.metrics import METRICS

PERIOD = cdk.Duration.minutes(5)
SOON = cdk.Duration.minutes(1)  # short, because failures have to end a canary within five minutes
# Metrics of a feed that are evaluated by the maximum of a period; all others are sums.
_GAUGES = (
    "FollowerLag",
    "FollowerAge",
    "OutboxAge",
    "ConsumerLag",
    "ConsumersLate",
    "ConsumersFellOff",
    "ArchiveLag",
    "RelayLag",
    "RelaysStanding",
    "RelayUpstreamAge",
    "RelayMasterAge",
)


def of_feed(name: str, stage: Stage) -> cloudwatch.Metric:
    """Return the metric of `tidings.core.metrics` with the given *name*."""
    metric = next(metric for metric in METRICS if metric.name == name)
    statistic = "Maximum" if name in _GAUGES else "Sum"
    service = settings.metrics_service(stage.name)
    return _metric(settings.METRICS_NAMESPACE, metric.name, statistic, service=service)


def of_mapping(name: str, source: StreamSource) -> cloudwatch.Metric:
    """Return the metric *name* of an event source mapping, from Lambda's group EventCount."""
    return _metric("AWS/Lambda", name, EventSourceMappingUUID=source.mapping.ref)


def of_function(name: str, called: str, *, statistic: str = "Sum") -> cloudwatch.Metric:
    """Return one of Lambda's own metrics of the function *called*."""
    return _metric("AWS/Lambda", name, statistic, FunctionName=called)


def of_account(name: str) -> cloudwatch.Metric:
    """Return one of Lambda's own metrics of all functions of the account and Region."""
    return _metric("AWS/Lambda", name)


def of_failures(stage: Stage) -> cloudwatch.Metric:
    """Return the metric that `logs.count_failures` publishes for all log groups of *stage*."""
    return of_lines(stage, logs.NAME).with_(period=SOON)


def of_lines(stage: Stage, name: str) -> cloudwatch.Metric:
    """Return the metric that `logs.count_lines` publishes for all log groups of *stage*."""
    return _metric(logs.namespace(stage), name)


def of_machine(name: str, arn: str) -> cloudwatch.Metric:
    """Return one of Step Functions' own metrics of a state machine."""
    return _metric("AWS/States", name, StateMachineArn=arn)


def _metric(
    namespace: str, name: str, statistic: str = "Sum", **dimension: str
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimension or None,
        statistic=statistic,
        period=PERIOD,
    )


_MB_MS = 1024 * 1000  # MB-milliseconds in a GB-second


@dataclass(frozen=True, slots=True)
class Paid:
    """Metrics of units that cost *dollars* each; the ids of the metrics begin with *name*."""

    name: str
    metrics: Sequence[cloudwatch.IMetric]
    dollars: float

    @property
    def used(self) -> dict[str, cloudwatch.IMetric]:
        return {f"{self.name}{at}": metric for at, metric in enumerate(self.metrics)}

    @property
    def term(self) -> str:
        """Return the expression of the cost; missing data count as 0."""
        return f"FILL(SUM([{','.join(self.used)}]), 0) * {self.dollars:.15f}"


def per_million(
    stage: Stage,
    functions: Sequence[TidingsFunction],
    tables: Tables,
    apis: Sequence[tuple[cloudwatch.IMetric, Price]],
) -> cloudwatch.MathExpression:
    """Return the cost of a million operations, in dollars.

    The result includes the costs that grow with use, at the prices of `infra.prices`: DynamoDB
    units, Lambda calls and duration, requests and messages. Storage and fixed costs are not
    included.
    """
    paid = [*_units(tables), *_calls(stage, functions), *_requests(apis)]
    used = {name: metric for each in paid for name, metric in each.used.items()}
    dollars = " + ".join(each.term for each in paid)
    return cloudwatch.MathExpression(
        expression=f"1000000 * ({dollars}) / operations",
        using_metrics=used | {"operations": of_feed("OperationsIngested", stage)},
        label="dollars",
        period=PERIOD,
    )


def _one(price: Price) -> float:
    return price.dollars / price.per


def _units(tables: Tables) -> Iterator[Paid]:
    for kind, price in (("Write", prices.WRITE_UNIT), ("Read", prices.READ_UNIT)):
        name = f"Consumed{kind}CapacityUnits"
        consumed = [
            table.metric(name, statistic="Sum", period=PERIOD) for table in tables.by_name.values()
        ]
        yield Paid(kind.lower(), consumed, _one(price))


def _calls(stage: Stage, functions: Sequence[TidingsFunction]) -> Iterator[Paid]:
    names = [each.function.function_name for each in functions]
    calls = [of_function("Invocations", name) for name in names]
    yield Paid("calls", calls, _one(prices.INVOCATION))
    by_memory: defaultdict[int, list[cloudwatch.IMetric]] = defaultdict(list)
    for each, name in zip(functions, names, strict=True):
        by_memory[memory_mb(each.blueprint, stage)].append(of_function("Duration", name))
    for size_mb, took in sorted(by_memory.items()):
        yield Paid(f"took{size_mb}mb", took, size_mb / _MB_MS * _one(prices.GB_SECOND))


def _requests(apis: Sequence[tuple[cloudwatch.IMetric, Price]]) -> Iterator[Paid]:
    for at, (metric, price) in enumerate(apis):
        yield Paid(f"asked{at}api", [metric], _one(price))
