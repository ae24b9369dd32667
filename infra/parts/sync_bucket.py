"""The bucket of dump syncs: what was planned, until it is applied and looked at."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.parts.bucket import private_bucket
from infra.settings import Stage


class SyncBucket(Construct):
    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        self.bucket = private_bucket(self, stage)

    def allow_reading(self, role: iam.Role, prefix: str) -> None:
        """The objects below *prefix*, and nothing else of the bucket."""
        objects = self.bucket.arn_for_objects(f"{prefix}*")
        role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=[objects]))
