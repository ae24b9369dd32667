"""State machines with logs and schedules."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.parts.logs import MACHINE, count_failures, log_group
from infra.parts.policies import Statement, allow, allow_all, allow_job_role, principal
from infra.settings import Stage

# CloudWatch Logs has no resource type for the delivery of logs.
LOG_DELIVERY = (
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)

SCHEDULER = "scheduler.amazonaws.com"


def machine_role(scope: Construct, jobs: iam.Role, *statements: Statement) -> iam.Role:
    """
    Return the role of a logged machine that starts jobs with the role *jobs*, plus *statements*.
    """
    role = iam.Role(scope, "Role", assumed_by=principal("states.amazonaws.com"))
    allow_all(role, *statements, (LOG_DELIVERY, ["*"]))
    allow_job_role(role, jobs)
    return role


def logged_machine(
    scope: Construct,
    stage: Stage,
    *,
    called: str,
    role: iam.Role,
    definition: dict[str, Any],
    logs_data: bool,
) -> stepfunctions.CfnStateMachine:
    """
    Return the machine *called* so; it depends on the permissions of *role*.

    *logs_data*: also log the input and output of its steps.
    """
    group = log_group(scope, "Logs", stage, path=f"/aws/vendedlogs/states/{called}")
    count_failures(group, stage, MACHINE)
    machine = stepfunctions.CfnStateMachine(
        scope,
        "Machine",
        state_machine_name=called,
        role_arn=role.role_arn,
        definition_string=cdk.Stack.of(scope).to_json_string(definition),
        logging_configuration={
            "level": "ALL",
            "includeExecutionData": logs_data,
            "destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": group.log_group_arn}}],
        },
    )
    machine.node.add_dependency(role)
    return machine


def start_by_clock(
    scope: Construct,
    expression: str,
    machine: str,
    *,
    name: str = "Clock",
    given: dict[str, Any] | None = None,
) -> None:
    """Start *machine* by the schedule *expression*, with the input *given* or none."""
    target = {"arn": machine, "roleArn": starting_role(scope, name, SCHEDULER, machine)}
    if given is not None:
        target["input"] = json.dumps(given)
    schedule(scope, name, expression, target)


def starting_role(scope: Construct, name: str, service: str, machine: str) -> str:
    """Return the ARN of a role with which *service* may only start *machine*."""
    role = iam.Role(scope, f"{name}Role", assumed_by=principal(service))
    allow(role, ("states:StartExecution",), [machine])
    return role.role_arn


def schedule(scope: Construct, name: str, expression: str, target: dict[str, str]) -> None:
    scheduler.CfnSchedule(
        scope,
        name,
        schedule_expression=expression,
        flexible_time_window={"mode": "OFF"},
        target=target,
    )
