"""A log group with the stage's retention."""

from __future__ import annotations

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.parts.tables import kept
from infra.settings import Stage

# CloudWatch takes only certain numbers of days; the CDK has a name for each.
_RETENTION = {
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    90: logs.RetentionDays.THREE_MONTHS,
}


def log_group(scope: Construct, name: str, stage: Stage, *, path: str) -> logs.LogGroup:
    """A log group called *path*; it outlives its stack where the stage keeps its data."""
    return logs.LogGroup(
        scope,
        name,
        log_group_name=path,
        retention=_RETENTION[stage.log_days],
        removal_policy=kept(stage),
    )
