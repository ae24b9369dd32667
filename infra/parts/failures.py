"""
One metric of what fails in a stage, made of log lines: no line, no data, no charge.

CloudWatch adds up what all log groups of a stage publish, because the metric has no dimension. A
metric of AWS's own exists for each function, API and machine, so there an alarm would be needed for
each.
"""

from __future__ import annotations

from aws_cdk import aws_logs as logs
from tidings.aws.config import metrics

from infra.settings import Stage

NAME = "Failures"

# Of Lambda's own records of calls. From the system log level WARN on, which `function` sets, those
# of calls that ended well are not written; a time-out and a process that died are among the others.
FUNCTION = '{ $.type = "platform.report" && $.record.status != "success" }'
# Of access logs: what API Gateway answered, or our function did.
API = '{ $.status = "5*" }'
# Of the history of executions. One that a guard stopped did not fail.
MACHINE = '{ $.type = "ExecutionFailed" || $.type = "ExecutionTimedOut" }'


def namespace(stage: Stage) -> str:
    """Of its own for each stage: what filters publish cannot carry its name."""
    return f"{metrics.NAMESPACE}/{stage.name}"


def count_failures(group: logs.LogGroup, stage: Stage, pattern: str) -> None:
    """Each line of *group* that *pattern* finds is a failure."""
    logs.MetricFilter(
        group,
        "Failures",
        log_group=group,
        filter_pattern=logs.FilterPattern.literal(pattern),
        metric_namespace=namespace(stage),
        metric_name=NAME,
        metric_value="1",
    )
