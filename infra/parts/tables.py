"""The tables of the blueprint: on demand, encrypted, with point-in-time recovery and TTL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.parts import policies
from infra.parts.policies import allow, allow_key, principal, removal_policy, table_removal_policy
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.aws.config.stages import data_stack_name, table_name

RECOVERY_DAYS = 35  # the maximum of DynamoDB
KEY = "key"  # the name under which its ARN is published

_TYPES = {"S": dynamodb.AttributeType.STRING, "N": dynamodb.AttributeType.NUMBER}


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table of the blueprint *by_name*; *key* encrypts them if given."""

    by_name: Mapping[str, dynamodb.ITable]
    key: kms.IKey | None
    stage: Stage

    def allow(self, role: iam.Role, grant: deployment.Grant) -> None:
        """
        Allow exactly the actions of *grant* on exactly its table.

        During a restore also on the table that is replaced: roles change minutes before aliases.
        """
        arns = [self.by_name[grant.table].table_arn]
        if self.stage.tables_before is not None:
            arns.append(_replaced_arn(cdk.Stack.of(role), self.stage, grant.table))
        allow(role, grant.actions, arns)

    def allow_key(self, role: iam.Role) -> None:
        """Allow using the stage's own key through DynamoDB; do nothing if AWS manages the keys."""
        if self.key is not None:
            allow_key(role, self.key.key_arn)


def make_tables(scope: Construct, name: str, *, stage: Stage, key: kms.IKey | None) -> Tables:
    """Return the tables, published for the stacks that use them."""
    inside = Construct(scope, name)
    made = {}
    for table in deployment.TABLES:
        encryption = dynamodb.TableEncryption
        made[table.name] = each = _table(
            inside,
            f"{table.name.capitalize()}{stage.tables}",
            table,
            stage,
            table_name=table_name(stage.name, table.name, stage.tables) if stage.tables else None,
            encryption=encryption.CUSTOMER_MANAGED if key else encryption.AWS_MANAGED,
            encryption_key=key,
            # A record is a wake-up: its receiver reads the table.
            stream=dynamodb.StreamViewType.KEYS_ONLY if table.stream else None,
        )
        policies.publish(inside, stage, f"{table.name}-table", each.table_name)
        if table.stream:
            assert each.table_stream_arn
            policies.publish(inside, stage, f"{table.name}-stream", each.table_stream_arn)
    return Tables(made, key, stage)


def _replaced_arn(stack: cdk.Stack, stage: Stage, table: str) -> str:
    """Return the ARN of the table replaced by a restore; CloudFormation ends generated names."""
    generated = f"{data_stack_name(stage.name)}-Tables{table.capitalize()}*"
    before = stage.tables_before
    name = table_name(stage.name, table, before) if before else generated
    return stack.format_arn(service="dynamodb", resource="table", resource_name=name)


def find_table(scope: Construct, stage: Stage, table: deployment.Table) -> dynamodb.ITable:
    """Return a table of *stage*, from another stack."""
    stream = policies.read(scope, stage, f"{table.name}-stream") if table.stream else None
    return dynamodb.Table.from_table_attributes(
        scope,
        table.name.capitalize(),
        table_name=policies.read(scope, stage, f"{table.name}-table"),
        table_stream_arn=stream,
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
            point_in_time_recovery_enabled=table.recoverable,
            recovery_period_in_days=RECOVERY_DAYS if table.recoverable else None,
        ),
        time_to_live_attribute=table.ttl_attribute,
        max_read_request_units=stage.reads_per_s_max,
        max_write_request_units=stage.writes_per_s_max,
        deletion_protection=stage.keep_data,
        removal_policy=table_removal_policy(stage),
        **others,
    )


def stage_key(scope: Construct, name: str, stage: Stage) -> kms.Key | None:
    """
    Return a rotated key for tables and alarms; None if AWS manages the keys.

    CloudWatch needs access to it to send alarms to an encrypted topic.
    """
    if not stage.customer_key:
        return None
    key = kms.Key(
        scope,
        name,
        description=f"Tidings {stage.name}: tables and alarms",
        enable_key_rotation=True,
        removal_policy=removal_policy(stage),
    )
    key.grant(principal("cloudwatch.amazonaws.com"), "kms:Decrypt", "kms:GenerateDataKey*")
    policies.publish(scope, stage, KEY, key.key_arn)
    return key


def find_key(scope: Construct, stage: Stage) -> kms.IKey | None:
    """Return the key of *stage*, from another stack."""
    if not stage.customer_key:
        return None
    return kms.Key.from_key_arn(scope, "Key", policies.read(scope, stage, KEY))


class Coordination(Construct):
    """
    The table of the leader election of chained feeds, shared by all candidate deployments.

    It belongs to one stage and is created by `make_seats`; the others refer to its ARN, from any
    Region and account. *url* is the value of TIDINGS_COORDINATOR.
    """

    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        if stage.coordinator:
            region = cdk.Arn.split(stage.coordinator, cdk.ArnFormat.SLASH_RESOURCE_NAME).region
            self.arn = stage.coordinator
            self.url = f"dynamodb://{quote(self.arn, safe='')}?region={region}"
            return
        table = find_table(self, stage, deployment.COORDINATION_TABLE)
        self.arn = table.table_arn
        self.url = f"dynamodb://{table.table_name}"
        cdk.CfnOutput(cdk.Stack.of(self), "SeatsTable", value=self.arn)

    def allow(self, role: iam.Role) -> None:
        """Allow reading and acquiring leadership leases."""
        allow(role, deployment.COORDINATION_ACTIONS, [self.arn])


def make_seats(scope: Construct, name: str, *, stage: Stage) -> None:
    """
    Create the table with a key owned by AWS: other accounts could not use a key of this account.
    """
    inside, leases = Construct(scope, name), deployment.COORDINATION_TABLE
    table = _table(inside, "Table", leases, stage, encryption=dynamodb.TableEncryption.DEFAULT)
    for account in stage.seat_accounts:
        table.add_to_resource_policy(_of_account(account))
    policies.publish(inside, stage, f"{leases.name}-table", table.table_name)


def _of_account(account: str) -> iam.PolicyStatement:
    """Return the policy for another account; a table's policy cannot contain its own ARN."""
    return iam.PolicyStatement(
        actions=list(deployment.COORDINATION_ACTIONS),
        principals=[iam.AccountPrincipal(account)],
        resources=["*"],
    )
