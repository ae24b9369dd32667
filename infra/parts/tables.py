"""The tables of the blueprint: on demand, encrypted, recoverable to any second, with TTL."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct
from tidings.aws.config import deployment
from tidings.aws.config.stages import table_name

from infra.parts.policies import allow, allow_key, kept, protected
from infra.settings import Stage

RECOVERY_DAYS = 35  # as far back as DynamoDB can restore

_TYPES = {"S": dynamodb.AttributeType.STRING, "N": dynamodb.AttributeType.NUMBER}


class Tables(Construct):
    """`by_name` holds every table of the blueprint."""

    def __init__(self, scope: Construct, name: str, *, stage: Stage, key: kms.IKey | None) -> None:
        super().__init__(scope, name)
        self.key = key
        self.by_name = {table.name: self._table(table, stage) for table in deployment.TABLES}

    def allow(self, role: iam.Role, grant: deployment.Grant) -> None:
        """Exactly the actions of *grant* on exactly its table."""
        allow(role, grant.actions, [self.by_name[grant.table].table_arn])

    def allow_key(self, role: iam.Role) -> None:
        """The stage's own key, for DynamoDB's use only; nothing where AWS manages the keys."""
        if self.key is not None:
            allow_key(role, self.key.key_arn)

    def _table(self, table: deployment.Table, stage: Stage) -> dynamodb.Table:
        encryption = dynamodb.TableEncryption
        return _table(
            self,
            f"{table.name.capitalize()}{stage.tables}",
            table,
            stage,
            table_name=table_name(stage.name, table.name, stage.tables) if stage.tables else None,
            encryption=encryption.CUSTOMER_MANAGED if self.key else encryption.AWS_MANAGED,
            encryption_key=self.key,
            # A record is a wake-up: whoever receives it reads the table.
            stream=dynamodb.StreamViewType.KEYS_ONLY if table.stream else None,
        )


def _table(
    scope: Construct, name: str, table: deployment.Table, stage: Stage, **others: Any
) -> dynamodb.Table:
    sort_name, sort_type = table.sort_key
    return dynamodb.Table(
        scope,
        name,
        partition_key=dynamodb.Attribute(
            name=table.partition_key, type=dynamodb.AttributeType.STRING
        ),
        sort_key=dynamodb.Attribute(name=sort_name, type=_TYPES[sort_type]),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True, recovery_period_in_days=RECOVERY_DAYS
        ),
        time_to_live_attribute=table.ttl_attribute,
        deletion_protection=stage.keep_data,
        removal_policy=protected(stage),
        **others,
    )


def stage_key(scope: Construct, name: str, stage: Stage) -> kms.Key | None:
    """
    A rotated key for tables and alarms; None where AWS manages the keys.

    CloudWatch must be able to use it, or its alarms never reach an encrypted topic.
    """
    if not stage.customer_key:
        return None
    key = kms.Key(
        scope,
        name,
        description=f"Tidings {stage.name}: tables and alarms",
        enable_key_rotation=True,
        removal_policy=kept(stage),
    )
    key.grant(
        iam.ServicePrincipal("cloudwatch.amazonaws.com"), "kms:Decrypt", "kms:GenerateDataKey"
    )
    return key


class Coordination(Construct):
    """
    The table where leaders of chained feeds are elected: one for all deployments that may lead.

    It belongs to one stage; the others name it by its ARN, from any Region and account. *url* is
    for TIDINGS_COORDINATOR.
    """

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
        """Read who leads, and take a leadership lease."""
        allow(role, deployment.COORDINATION_ACTIONS, [self.arn])

    def _table(self, stage: Stage) -> dynamodb.Table:
        """Under a key that AWS owns: other accounts could not use one of this account's."""
        default = dynamodb.TableEncryption.DEFAULT
        table = _table(self, "Table", deployment.COORDINATION_TABLE, stage, encryption=default)
        for account in stage.seat_accounts:
            table.add_to_resource_policy(_of_account(account))
        return table


def _of_account(account: str) -> iam.PolicyStatement:
    """Who in that account may is said there; a policy of a table cannot name its own ARN."""
    return iam.PolicyStatement(
        actions=list(deployment.COORDINATION_ACTIONS),
        principals=[iam.AccountPrincipal(account)],
        resources=["*"],
    )
