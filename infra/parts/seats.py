"""
The table where leaders of chained feeds are elected: one for all deployments that may lead.

It stands in one stage; the others name it by its ARN, from any Region and account.
"""

from __future__ import annotations

from urllib.parse import quote

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct
from tidings.aws.config import deployment

from infra.parts.tables import RECOVERY_DAYS, protected
from infra.settings import Stage


class Seats(Construct):
    """*url* is for TIDINGS_COORDINATOR."""

    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        if stage.coordinator:
            region = cdk.Arn.split(stage.coordinator, cdk.ArnFormat.SLASH_RESOURCE_NAME).region
            self.arn = stage.coordinator
            self.url = f"dynamodb://{quote(self.arn, safe='')}?region={region}"
            return
        table = self._table(stage)
        self.arn = table.table_arn
        self.url = f"dynamodb://{table.table_name}"
        cdk.CfnOutput(cdk.Stack.of(self), "SeatsTable", value=self.arn)

    def allow(self, role: iam.Role) -> None:
        """Look who leads, and take a seat."""
        role.add_to_policy(
            iam.PolicyStatement(actions=list(deployment.COORDINATION_ACTIONS), resources=[self.arn])
        )

    def _table(self, stage: Stage) -> dynamodb.Table:
        """Under a key that AWS owns: other accounts could not use one of this account's."""
        table = deployment.COORDINATION_TABLE
        made = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(
                name=table.partition_key, type=dynamodb.AttributeType.STRING
            ),
            sort_key=dynamodb.Attribute(name=table.sort_key[0], type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.DEFAULT,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True, recovery_period_in_days=RECOVERY_DAYS
            ),
            time_to_live_attribute=table.ttl_attribute,
            deletion_protection=stage.keep_data,
            removal_policy=protected(stage),
        )
        for account in stage.seat_accounts:
            made.add_to_resource_policy(_of_account(account))
        return made


def _of_account(account: str) -> iam.PolicyStatement:
    """Who in that account may is said there; a policy of a table cannot name its own ARN."""
    return iam.PolicyStatement(
        actions=list(deployment.COORDINATION_ACTIONS),
        principals=[iam.AccountPrincipal(account)],
        resources=["*"],
    )
