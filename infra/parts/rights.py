"""Rights of roles."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam


def allow(role: iam.Role, actions: Sequence[str], resources: Sequence[str]) -> None:
    """*actions* on *resources*, and nothing else."""
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))


def allow_job_role(role: iam.Role, passed: iam.Role) -> None:
    """To start jobs of EMR Serverless under *passed*."""
    to = {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    role.add_to_policy(
        iam.PolicyStatement(actions=["iam:PassRole"], resources=[passed.role_arn], conditions=to)
    )
