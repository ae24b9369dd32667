"""Log groups, the access logs of the APIs, and the permission of API Gateway to write them."""

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

from infra.parts.failures import API, count_failures
from infra.parts.policies import kept
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


# API Gateway's names of what it knows of any request.
_ALWAYS = ("requestId", "requestTime", "routeKey", "status", "integrationErrorMessage")
HTTP_FIELDS = (*_ALWAYS, "httpMethod", "path", "responseLatency", "responseLength")
SOCKET_FIELDS = (*_ALWAYS, "eventType", "connectionId", "integrationLatency")


@jsii.implements(apigateway.IAccessLogSettings)
class AccessLog:
    """
    Writes *fields* to a log group of the stage: a line of JSON a request, without bodies, cursors
    or addresses.
    """

    def __init__(
        self, scope: Construct, name: str, stage: Stage, *, path: str, fields: Sequence[str]
    ) -> None:
        group = log_group(scope, name, stage, path=path)
        count_failures(group, stage, API)
        self._destination = apigateway.LogGroupLogDestination(group)
        line = json.dumps({field: f"$context.{field}" for field in fields})
        self._format = rest.AccessLogFormat.custom(line)

    @property
    def destination(self) -> apigateway.IAccessLogDestination:
        return self._destination

    @property
    def format(self) -> rest.AccessLogFormat:
        return self._format


MANAGED_POLICY = "service-role/AmazonAPIGatewayPushToCloudWatchLogs"


class GatewayLogging(Construct):
    """
    API Gateway's permission to write logs, one for an account and Region.

    WebSocket APIs cannot log without it (HTTP APIs can). Both parts stay when a stack is deleted or
    gives them up: the account's other APIs, and other stages, may have come to rely on them.
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
