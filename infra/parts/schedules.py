"""EventBridge Scheduler: the functions of the blueprint that run by the clock."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct
from tidings.aws.config import deployment

from infra.parts.function import TidingsFunction
from infra.parts.policies import allow

EVENT_AGE_S = 60  # the shortest Scheduler takes


class Clock(Construct):
    """The schedules of a stage: `targets` are run by it, `group` names its metrics."""

    def __init__(
        self, scope: Construct, name: str, functions: Mapping[str, TidingsFunction]
    ) -> None:
        super().__init__(scope, name)
        self.group = scheduler.CfnScheduleGroup(self, "Group").ref
        self.targets = [functions[schedule.function] for schedule in deployment.SCHEDULES]
        for schedule, target in zip(deployment.SCHEDULES, self.targets, strict=True):
            FunctionSchedule(
                scope, f"{target.node.id}Clock", schedule=schedule, target=target, group=self.group
            )


class FunctionSchedule(Construct):
    """Runs one function every few minutes; a missed run is made up for by the next."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        schedule: deployment.Schedule,
        target: TidingsFunction,
        group: str,
    ) -> None:
        super().__init__(scope, name)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        allow(role, ["lambda:InvokeFunction"], [target.live.function_arn])
        minutes = schedule.every_minutes
        scheduler.CfnSchedule(
            self,
            "Schedule",
            group_name=group,
            schedule_expression=f"rate({minutes} minute{'s' if minutes > 1 else ''})",
            flexible_time_window={"mode": "OFF"},
            target={
                "arn": target.live.function_arn,
                "roleArn": role.role_arn,
                "retryPolicy": {
                    "maximumEventAgeInSeconds": EVENT_AGE_S,
                    "maximumRetryAttempts": 0,
                },
            },
        )
