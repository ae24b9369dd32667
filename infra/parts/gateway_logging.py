"""
API Gateway's permission to write logs, one for an account and region.

WebSocket APIs cannot log without it (HTTP APIs can). Both parts stay when a stack is deleted: the
account's other APIs may have come to rely on them.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from constructs import Construct

MANAGED_POLICY = "service-role/AmazonAPIGatewayPushToCloudWatchLogs"


class GatewayLogging(Construct):
    def __init__(self, scope: Construct, name: str) -> None:
        super().__init__(scope, name)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(MANAGED_POLICY)],
        )
        role.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
        account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
