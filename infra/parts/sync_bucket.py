"""The bucket of dump syncs: what was planned, until it is applied and looked at."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.parts.tables import kept
from infra.settings import Stage

KEEP_DAYS = 30  # a plan is too old long before; its summary may still be wanted


class SyncBucket(Construct):
    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            lifecycle_rules=[s3.LifecycleRule(expiration=cdk.Duration.days(KEEP_DAYS))],
            removal_policy=kept(stage),
        )

    def allow_reading(self, role: iam.Role, prefix: str) -> None:
        """The objects below *prefix*, and nothing else of the bucket."""
        objects = self.bucket.arn_for_objects(f"{prefix}*")
        role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=[objects]))
