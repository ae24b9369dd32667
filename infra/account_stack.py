"""What an account and Region has once, for all stages that are in it."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct
from tidings.aws.config.stages import ACCOUNT_STACK

from infra import suppressions
from infra.parts.logs import GatewayLogging


class AccountStack(cdk.Stack):
    def __init__(self, scope: Construct) -> None:
        super().__init__(scope, ACCOUNT_STACK, description="Tidings: what its stages share")
        GatewayLogging(self, "GatewayLogging")
        suppressions.apply(self)
