"""Log groups, access logs, and one metric of the failures of a stage, derived from log lines.

CloudWatch adds up the values of all log groups of a stage, because the metric has no dimension.
AWS's own metrics exist per function, API and machine, and would need an alarm each. Without
failures the metric has no data and costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import aws_cdk as cdk
import jsii
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.parts.policies import removal_policy
from infra.settings import Stage
from tidings.aws.config import settings

NAME = "Failures"

# Matches Lambda's records of failed calls, including timeouts and crashes. Lambda also writes these
# records with the system log level WARN, which `infra.parts.function` sets.
FUNCTION = '{ $.type = "platform.report" && $.record.status != "success" }'
# Matches the lines with a status 5xx in an access log of API Gateway.
API = '{ $.status = "5*" }'
# Matches the failed executions in the log of a state machine.
MACHINE = '{ $.type = "ExecutionFailed" || $.type = "ExecutionTimedOut" }'


def namespace(stage: Stage) -> str:
    """Return the namespace for metrics of this stage only.

    The metrics of the log filters have no dimensions, so only the namespace separates the stages.
    """
    return f"{settings.METRICS_NAMESPACE}/{stage.name}"


def count_failures(group: logs.LogGroup, stage: Stage, pattern: str) -> None:
    """Count each line of *group* that matches *pattern* as a failure."""
    count_lines(group, stage, pattern, NAME)


def count_lines(group: logs.LogGroup, stage: Stage, pattern: str, name: str) -> None:
    """Count each line of *group* that matches *pattern* in the metric *name* of *stage*."""
    logs.MetricFilter(
        group,
        name,
        log_group=group,
        filter_pattern=logs.FilterPattern.literal(pattern),
        metric_namespace=namespace(stage),
        metric_name=name,
        metric_value="1",
    )


def log_group(scope: Construct, name: str, stage: Stage, *, path: str) -> logs.LogGroup:
    """Return a log group called *path*; it outlives its stack if the stage keeps its data."""
    made = logs.LogGroup(scope, name, log_group_name=path, removal_policy=removal_policy(stage))
    group = made.node.default_child
    assert isinstance(group, logs.CfnLogGroup)
    group.retention_in_days = stage.log_days  # set here, because the CDK's argument is an enum
    return made


# API Gateway's names of the fields that every request has.
_ALWAYS = ("requestId", "requestTime", "routeKey", "status", "integrationErrorMessage")
HTTP_FIELDS = (
    *_ALWAYS,
    "httpMethod",
    "path",
    "responseLatency",
    "responseLength",
    "integration.requestId",  # joins the line with those of the function; sockets: connectionId
)
SOCKET_FIELDS = (*_ALWAYS, "eventType", "connectionId", "integrationLatency")


@jsii.implements(apigateway.IAccessLogSettings)
class AccessLog:
    """An access log of *fields* in a log group of the stage.

    The log has one line of JSON per request, without bodies, cursors, keys or addresses. Functions
    log the key, and the address if TIDINGS_LOG_ADDRESSES is set.
    """

    def __init__(
        self, scope: Construct, name: str, stage: Stage, *, path: str, fields: Sequence[str]
    ) -> None:
        group = log_group(scope, name, stage, path=path)
        count_failures(group, stage, API)
        self._destination = apigateway.LogGroupLogDestination(group)
        names = {field.replace(".", "_"): f"$context.{field}" for field in fields}
        line = json.dumps(names)
        self._format = rest.AccessLogFormat.custom(line)

    @property
    def destination(self) -> apigateway.IAccessLogDestination:
        return self._destination

    @property
    def format(self) -> rest.AccessLogFormat:
        return self._format


MANAGED_POLICY = "service-role/AmazonAPIGatewayPushToCloudWatchLogs"


class GatewayLogging(Construct):
    """API Gateway's permission to write logs, one for an account and Region.

    WebSocket APIs cannot log without this permission (HTTP APIs can). The role and the account
    setting are retained when the stack is deleted, because other APIs of the account and other
    stages may depend on them.
    """

    def __init__(self, scope: Construct, name: str) -> None:
        super().__init__(scope, name)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(MANAGED_POLICY)],
        )
        role.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
        account = rest.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
