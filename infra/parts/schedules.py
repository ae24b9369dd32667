"""EventBridge Scheduler: the functions of the blueprint that run by the clock."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct
from tidings.aws import blueprint

from infra.parts.function import TidingsFunction

EVENT_AGE_S = 60  # the shortest Scheduler takes


class FunctionSchedule(Construct):
    """Runs one function every few minutes; a missed run is made up for by the next."""

    def __init__(
        self, scope: Construct, name: str, *, schedule: blueprint.Schedule, target: TidingsFunction
    ) -> None:
        super().__init__(scope, name)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["lambda:InvokeFunction"], resources=[target.function.function_arn]
            )
        )
        minutes = schedule.every_minutes
        scheduler.CfnSchedule(
            self,
            "Schedule",
            schedule_expression=f"rate({minutes} minute{'s' if minutes > 1 else ''})",
            flexible_time_window={"mode": "OFF"},
            target={
                "arn": target.function.function_arn,
                "roleArn": role.role_arn,
                "retryPolicy": {
                    "maximumEventAgeInSeconds": EVENT_AGE_S,
                    "maximumRetryAttempts": 0,
                },
            },
        )
