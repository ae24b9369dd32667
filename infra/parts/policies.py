"""What roles may do, and what becomes of stored data when its stack is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from infra.settings import Stage

Statement = tuple[Sequence[str], Sequence[str]]
KEY_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey")


def allow(role: iam.Role, actions: Sequence[str], resources: Sequence[str]) -> None:
    """*actions* on *resources*, and nothing else."""
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))


def allow_all(role: iam.Role, *statements: Statement) -> None:
    """Each of *statements*: actions on resources."""
    for actions, resources in statements:
        allow(role, actions, resources)


def allow_job_role(role: iam.Role, passed: iam.Role) -> None:
    """To start jobs of EMR Serverless under *passed*."""
    to = {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    role.add_to_policy(
        iam.PolicyStatement(actions=["iam:PassRole"], resources=[passed.role_arn], conditions=to)
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


def principal(service: str) -> iam.ServicePrincipal:
    """*service*, on behalf of this account."""
    account: dict[str, Any] = {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
    return iam.ServicePrincipal(service, conditions=account)


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
