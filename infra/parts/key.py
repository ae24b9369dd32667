"""The stage's own key, where it wants one."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.parts.tables import kept
from infra.settings import Stage


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
