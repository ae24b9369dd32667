"""Buckets nobody else sees: of stream records that were given up, of syncs, of the archive."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.parts import published
from infra.parts.policies import allow, allow_key, kept
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


@dataclass(frozen=True, slots=True)
class SyncBucket:
    """Where dumps and plans are."""

    bucket: s3.IBucket

    def allow_reading(self, role: iam.Role, prefix: str) -> None:
        """The objects below *prefix*, and nothing else of the bucket."""
        allow(role, ["s3:GetObject"], [self.bucket.arn_for_objects(f"{prefix}*")])


def make_sync_bucket(scope: Construct, name: str, *, stage: Stage) -> None:
    """It tells EventBridge of what is put into it."""
    made = private_bucket(Construct(scope, name), stage)
    # The CDK's own way makes a function with rights on every bucket.
    bucket = made.node.default_child
    assert isinstance(bucket, s3.CfnBucket)
    bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
            event_bridge_enabled=True
        )
    )
    _publish(scope, stage, name, made)


def find_bucket(scope: Construct, name: str, *, stage: Stage) -> s3.IBucket:
    """The bucket that *stage* has as *name*, from another stack."""
    told = published.read(scope, stage, _told(name))
    return s3.Bucket.from_bucket_name(scope, f"{name}Bucket", told)


def _publish(scope: Construct, stage: Stage, name: str, bucket: s3.IBucket) -> None:
    published.publish(scope, stage, _told(name), bucket.bucket_name)


def _told(name: str) -> str:
    return f"{name.lower()}-bucket"


BELOW = "archive/"  # where every part is
UPLOAD_DAYS = 1  # of a job that was killed in the middle of one; it would be paid for unseen

_OBJECT_ACTIONS = {"read": "s3:GetObject", "write": "s3:PutObject"}
_KEY_ACTIONS = {"read": "kms:Decrypt", "write": "kms:GenerateDataKey"}


@dataclass(frozen=True, slots=True)
class ArchiveBucket:
    """Where the parts of the archive are; *key* encrypts them where there is one."""

    bucket: s3.IBucket
    key: kms.IKey | None

    @property
    def url(self) -> str:
        """As `tidings.http.archive_url` reads it."""
        return f"s3://{self.bucket.bucket_name}"

    def allow(self, role: iam.Role, what: str) -> None:
        """
        `read` or `write` parts; who reads them may list them.

        List them all: under a condition on the prefix, S3 would say of a part that is gone that
        access to it is denied, and a reader could not tell the one from the other.
        """
        allow(role, [_OBJECT_ACTIONS[what]], [self.bucket.arn_for_objects(f"{BELOW}*")])
        if what == "read":
            allow(role, ["s3:ListBucket"], [self.bucket.bucket_arn])
        if self.key is not None:
            allow_key(role, self.key.key_arn, [_KEY_ACTIONS[what]], service="s3")


def make_archive_bucket(scope: Construct, name: str, *, stage: Stage, key: kms.IKey | None) -> None:
    """
    Without versions: parts never change but by compaction, and a version of each would keep what
    compaction is there to drop.
    """
    made = closed_bucket(Construct(scope, name), stage, rule=_lifecycle(stage), key=key)
    _publish(scope, stage, name, made)


def make_lake_bucket(scope: Construct, name: str, *, stage: Stage, key: kms.IKey | None) -> None:
    """Of its own: who reads the tables needs no right on the parts."""
    unfinished = s3.LifecycleRule(
        abort_incomplete_multipart_upload_after=cdk.Duration.days(UPLOAD_DAYS)
    )
    made = closed_bucket(Construct(scope, name), stage, rule=unfinished, key=key)
    _publish(scope, stage, name, made)


def make_given_up_bucket(scope: Construct, name: str, *, stage: Stage) -> None:
    """Where stream records go that could not be handled, whole."""
    _publish(scope, stage, name, private_bucket(Construct(scope, name), stage))


def _lifecycle(stage: Stage) -> s3.LifecycleRule:
    colder = s3.StorageClass.GLACIER_INSTANT_RETRIEVAL  # answers at once, as a replay needs it
    days = stage.archive_cold_days
    return s3.LifecycleRule(
        abort_incomplete_multipart_upload_after=cdk.Duration.days(UPLOAD_DAYS),
        transitions=(
            None
            if days is None
            else [s3.Transition(storage_class=colder, transition_after=cdk.Duration.days(days))]
        ),
    )
