"""The bucket of syncs: dumps that are uploaded, and what was planned, until it is looked at."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.parts.bucket import private_bucket
from infra.settings import Stage


class SyncBucket(Construct):
    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        self.bucket = private_bucket(self, stage)
        # The CDK's own way makes a function with rights on every bucket.
        bucket = self.bucket.node.default_child
        assert isinstance(bucket, s3.CfnBucket)
        bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
                event_bridge_enabled=True
            )
        )

    def allow_reading(self, role: iam.Role, prefix: str) -> None:
        """The objects below *prefix*, and nothing else of the bucket."""
        objects = self.bucket.arn_for_objects(f"{prefix}*")
        role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=[objects]))
