"""The CloudWatch metrics that alarms and dashboard look at."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from tidings.aws.config import metrics

from infra.parts.schedules import Clock
from infra.parts.stream_source import StreamSource
from infra.settings import Stage

PERIOD = cdk.Duration.minutes(5)


def of_feed(name: str, stage: Stage, *, statistic: str = "Sum") -> cloudwatch.Metric:
    """A metric of `tidings.aws.config.metrics`, by its name."""
    metric = next(metric for metric in metrics.METRICS if metric.name == name)
    return cloudwatch.Metric(
        namespace=metrics.NAMESPACE,
        metric_name=metric.name,
        dimensions_map={"service": metrics.service(stage.name)},
        statistic=statistic,
        period=PERIOD,
    )


def of_mapping(name: str, source: StreamSource) -> cloudwatch.Metric:
    """One of the EventCount metrics of an event source mapping."""
    return cloudwatch.Metric(
        namespace="AWS/Lambda",
        metric_name=name,
        dimensions_map={"EventSourceMappingUUID": source.mapping.ref},
        statistic="Sum",
        period=PERIOD,
    )


def of_function(name: str, called: str, *, statistic: str = "Sum") -> cloudwatch.Metric:
    """One of Lambda's own metrics of the function called *called*."""
    return cloudwatch.Metric(
        namespace="AWS/Lambda",
        metric_name=name,
        dimensions_map={"FunctionName": called},
        statistic=statistic,
        period=PERIOD,
    )


def of_schedules(name: str, clock: Clock) -> cloudwatch.Metric:
    """One of EventBridge Scheduler's own metrics of a stage's schedules together."""
    return cloudwatch.Metric(
        namespace="AWS/Scheduler",
        metric_name=name,
        dimensions_map={"ScheduleGroup": clock.group},
        statistic="Sum",
        period=PERIOD,
    )


def of_machine(name: str, arn: str) -> cloudwatch.Metric:
    """One of Step Functions' own metrics of a state machine."""
    return cloudwatch.Metric(
        namespace="AWS/States",
        metric_name=name,
        dimensions_map={"StateMachineArn": arn},
        statistic="Sum",
        period=PERIOD,
    )
