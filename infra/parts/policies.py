"""Permissions of roles, removal policies of stored data, and values that stacks share.

One stack writes each value to a parameter of Systems Manager, and the others read it when they are
deployed. CloudFormation exports are not used, because an export cannot change while another stack
imports it, and the names of tables change when tables are restored (ADR 53).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.names import title
from infra.settings import Stage

Statement = tuple[Sequence[str], Sequence[str]]
KEY_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey")


def allow(role: iam.Role, actions: Sequence[str], resources: Sequence[str]) -> None:
    """Allow *role* to do *actions* on *resources*, in addition to its other permissions."""
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))


def allow_all(role: iam.Role, *statements: Statement) -> None:
    """Allow each of *statements*: actions on resources."""
    for actions, resources in statements:
        allow(role, actions, resources)


def allow_job_role(role: iam.Role, passed: iam.Role) -> None:
    """Allow *role* to start jobs of EMR Serverless with the role *passed*."""
    to = {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    role.add_to_policy(
        iam.PolicyStatement(actions=["iam:PassRole"], resources=[passed.role_arn], conditions=to)
    )


def allow_key(
    role: iam.Role, arn: str, actions: Sequence[str] = KEY_ACTIONS, service: str = "dynamodb"
) -> None:
    """Allow *role* to use the KMS key *arn*, but only through *service*."""
    through = {"kms:ViaService": f"{service}.{cdk.Aws.REGION}.{cdk.Aws.URL_SUFFIX}"}
    role.add_to_policy(
        iam.PolicyStatement(
            actions=list(actions), resources=[arn], conditions={"StringEquals": through}
        )
    )


def principal(service: str) -> iam.ServicePrincipal:
    """Return the principal *service*, restricted to requests on behalf of this account."""
    account: dict[str, Any] = {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
    return iam.ServicePrincipal(service, conditions=account)


def removal_policy(stage: Stage) -> cdk.RemovalPolicy:
    """Return the removal policy of stored data, which applies when the stack is deleted.

    If the first deployment of a stage is rolled back, nothing is kept, because kept resources would
    occupy the names that the next deployment needs.
    """
    policies = cdk.RemovalPolicy
    return policies.RETAIN_ON_UPDATE_OR_DELETE if stage.keep_data else policies.DESTROY


def table_removal_policy(stage: Stage) -> cdk.RemovalPolicy:
    """Return the removal policy of a table.

    In a stage that keeps its data, DynamoDB refuses to delete a table. A rollback that tried to
    delete tables would fail, so with this policy a rollback retains them. Retained tables do not
    hinder the next deployment, because the names of tables are generated. Restored tables are also
    retained, because CloudFormation only imports tables with this policy.
    """
    retained = stage.keep_data or stage.tables
    return cdk.RemovalPolicy.RETAIN if retained else cdk.RemovalPolicy.DESTROY


# CloudFormation resolves a parameter of this type before it compares templates. So CloudFormation
# recognizes an unchanged property. This matters for a property that cannot be changed in place,
# such as the stream of an event source mapping.
_READ = "AWS::SSM::Parameter::Value<String>"


def publish(scope: Construct, stage: Stage, name: str, value: str) -> None:
    """Publish *value* as *name* for the other stacks of *stage*."""
    ssm.CfnParameter(
        scope, f"{title(name)}Told", name=_path(stage, name), type="String", value=value
    )


def read(scope: Construct, stage: Stage, name: str) -> str:
    """Return a reference to the published value *name* of *stage*, resolved at deployment."""
    made = cdk.CfnParameter(scope, f"{title(name)}Is", type=_READ, default=_path(stage, name))
    return made.value_as_string


def _path(stage: Stage, name: str) -> str:
    return f"/tidings/{stage.name}/{name}"
