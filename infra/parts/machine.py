"""State machines: logged, and started by the clock."""

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

# CloudWatch Logs takes no resource for the delivery of logs.
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
    """The role of a logged machine that starts jobs under the role *jobs*, and may *statements*."""
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
    The machine *called* so, in *scope*, with what *role* may do from its first step on.

    *logs_data*: what its steps are given and return is logged, too.
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
    """Start *machine* whenever *expression* says so, with the input *given* or none."""
    target = {"arn": machine, "roleArn": starting_role(scope, name, SCHEDULER, machine)}
    if given is not None:
        target["input"] = json.dumps(given)
    schedule(scope, name, expression, target)


def starting_role(scope: Construct, name: str, service: str, machine: str) -> str:
    """The ARN of a role by which *service* may start *machine* and nothing else."""
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
