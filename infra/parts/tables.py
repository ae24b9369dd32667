"""The tables of the blueprint: on demand, encrypted, recoverable to any second, with TTL."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct
from tidings.aws.config import deployment
from tidings.aws.config.stages import table_name

from infra.settings import Stage

KEY_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey")
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
        allow(role, self.by_name[grant.table], grant)

    def allow_key(self, role: iam.Role) -> None:
        """The stage's own key, for DynamoDB's use only; nothing where AWS manages the keys."""
        if self.key is not None:
            allow_key(role, self.key.key_arn)

    def _table(self, table: deployment.Table, stage: Stage) -> dynamodb.Table:
        sort_name, sort_type = table.sort_key
        return dynamodb.Table(
            self,
            f"{table.name.capitalize()}{stage.tables}",
            table_name=table_name(stage.name, table.name, stage.tables) if stage.tables else None,
            partition_key=dynamodb.Attribute(
                name=table.partition_key, type=dynamodb.AttributeType.STRING
            ),
            sort_key=dynamodb.Attribute(name=sort_name, type=_TYPES[sort_type]),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=(
                dynamodb.TableEncryption.CUSTOMER_MANAGED
                if self.key
                else dynamodb.TableEncryption.AWS_MANAGED
            ),
            encryption_key=self.key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True, recovery_period_in_days=RECOVERY_DAYS
            ),
            time_to_live_attribute=table.ttl_attribute,
            # A record is a doorbell: whoever hears it reads the table.
            stream=dynamodb.StreamViewType.KEYS_ONLY if table.stream else None,
            deletion_protection=stage.keep_data,
            removal_policy=protected(stage),
        )


def allow(role: iam.Role, table: dynamodb.ITable, grant: deployment.Grant) -> None:
    """The actions of *grant* on *table*, which is the one it names."""
    role.add_to_policy(
        iam.PolicyStatement(actions=list(grant.actions), resources=[table.table_arn])
    )


def allow_key(
    role: iam.Role, arn: str, actions: Sequence[str] = KEY_ACTIONS, service: str = "dynamodb"
) -> None:
    """The KMS key *arn*, for the use of one *service* only."""
    through = {"kms:ViaService": f"{service}.{cdk.Aws.REGION}.{cdk.Aws.URL_SUFFIX}"}
    role.add_to_policy(
        iam.PolicyStatement(
            actions=list(actions), resources=[arn], conditions={"StringEquals": through}
        )
    )


def kept(stage: Stage) -> cdk.RemovalPolicy:
    """
    What becomes of stored data when its stack is deleted.

    A first deploy that is rolled back leaves nothing: the next would find its names taken.
    """
    policies = cdk.RemovalPolicy
    return policies.RETAIN_ON_UPDATE_OR_DELETE if stage.keep_data else policies.DESTROY


def protected(stage: Stage) -> cdk.RemovalPolicy:
    """
    The same of a table. One that is protected refuses to be deleted, by a rollback too, which would
    fail of it: empty tables stay behind instead, under names that AWS made up.
    """
    return cdk.RemovalPolicy.RETAIN if stage.keep_data else cdk.RemovalPolicy.DESTROY
