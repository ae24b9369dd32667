"""The CloudWatch metrics that alarms and dashboard look at."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from tidings.aws.config import metrics

from infra.parts import failures
from infra.parts.stream_source import StreamSource
from infra.settings import Stage

PERIOD = cdk.Duration.minutes(5)
SOON = cdk.Duration.minutes(1)  # a canary lasts five
# Metrics of a feed whose largest value in a period counts; all others are counts.
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
    """A metric of `tidings.core.metrics`, by its name."""
    metric = next(metric for metric in metrics.METRICS if metric.name == name)
    statistic = "Maximum" if name in _GAUGES else "Sum"
    service = metrics.service(stage.name)
    return _metric(metrics.NAMESPACE, metric.name, statistic, service=service)


def of_mapping(name: str, source: StreamSource) -> cloudwatch.Metric:
    """One of the EventCount metrics of an event source mapping."""
    return _metric("AWS/Lambda", name, EventSourceMappingUUID=source.mapping.ref)


def of_function(name: str, called: str, *, statistic: str = "Sum") -> cloudwatch.Metric:
    """One of Lambda's own metrics of the function called *called*."""
    return _metric("AWS/Lambda", name, statistic, FunctionName=called)


def of_account(name: str) -> cloudwatch.Metric:
    """One of Lambda's own metrics of all functions of the account and Region together."""
    return _metric("AWS/Lambda", name)


def of_failures(stage: Stage) -> cloudwatch.Metric:
    """What `failures` counts in all log groups of *stage*."""
    return _metric(failures.namespace(stage), failures.NAME).with_(period=SOON)


def of_machine(name: str, arn: str) -> cloudwatch.Metric:
    """One of Step Functions' own metrics of a state machine."""
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
