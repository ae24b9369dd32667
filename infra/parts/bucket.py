"""Buckets nobody else sees."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.parts.tables import kept
from infra.settings import Stage

KEEP_DAYS = 30  # long enough for somebody to look at what was given up, or at a plan's summary


def private_bucket(scope: Construct, stage: Stage) -> s3.Bucket:
    """One whose objects go by themselves."""
    gone = s3.LifecycleRule(expiration=cdk.Duration.days(KEEP_DAYS))
    return closed_bucket(scope, stage, rule=gone)


def closed_bucket(
    scope: Construct, stage: Stage, *, rule: s3.LifecycleRule, key: kms.IKey | None = None
) -> s3.Bucket:
    """Encrypted, by *key* where there is one; closed to the public, over TLS only."""
    return s3.Bucket(
        scope,
        "Bucket",
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        lifecycle_rules=[rule],
        removal_policy=kept(stage),
    )
