"""Private buckets, for discarded stream records, syncs, the archive and the lake."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.parts import policies
from infra.parts.policies import allow, allow_key, removal_policy
from infra.settings import Stage
from tidings.core import limits


def private_bucket(scope: Construct, stage: Stage) -> s3.Bucket:
    """Return a private bucket that deletes objects after `SYNC_FILES_DAYS`."""
    gone = s3.LifecycleRule(expiration=cdk.Duration.days(limits.SYNC_FILES_DAYS))
    return closed_bucket(scope, stage, rule=gone)


def closed_bucket(
    scope: Construct, stage: Stage, *, rule: s3.LifecycleRule, key: kms.IKey | None = None
) -> s3.Bucket:
    """Return a bucket that is encrypted (by *key* if given), private, and over TLS only."""
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
        removal_policy=removal_policy(stage),
    )


@dataclass(frozen=True, slots=True)
class SyncBucket:
    """The bucket of dumps and plans."""

    bucket: s3.IBucket

    def allow_reading(self, role: iam.Role, prefix: str) -> None:
        """Allow *role* to read the objects below *prefix*, but no others in the bucket."""
        allow(role, ["s3:GetObject"], [self.bucket.arn_for_objects(f"{prefix}*")])


def make_sync_bucket(scope: Construct, name: str, *, stage: Stage) -> None:
    """Create the sync bucket, which notifies EventBridge of new objects."""
    made = private_bucket(Construct(scope, name), stage)
    # The CDK's own property would create a function with rights on every bucket.
    bucket = made.node.default_child
    assert isinstance(bucket, s3.CfnBucket)
    bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
            event_bridge_enabled=True
        )
    )
    _publish(scope, stage, name, made)


def find_bucket(scope: Construct, name: str, *, stage: Stage) -> s3.IBucket:
    """Return a reference to the bucket *name*, which belongs to another stack of *stage*."""
    value = policies.read(scope, stage, _parameter(name))
    return s3.Bucket.from_bucket_name(scope, f"{name}Bucket", value)


def _publish(scope: Construct, stage: Stage, name: str, bucket: s3.IBucket) -> None:
    policies.publish(scope, stage, _parameter(name), bucket.bucket_name)


def _parameter(name: str) -> str:
    return f"{name.lower()}-bucket"


BELOW = "archive/"  # the prefix of the keys of all parts
UPLOAD_DAYS = 1  # S3 deletes an unfinished upload, which costs storage, after this time

LEDGER = "erasures/"  # the prefix of the keys of the ledger of erasures

_GET, _PUT, _DELETE = "s3:GetObject", "s3:PutObject", "s3:DeleteObject"
_OBJECT_ACTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "read": {BELOW: (_GET,)},
    "write": {BELOW: (_PUT,)},
    "ledger": {LEDGER: (_PUT,)},
    "rewrite": {BELOW: (_GET, _PUT, _DELETE), LEDGER: (_GET, _PUT, _DELETE)},
    "remove": {BELOW: (_DELETE,), LEDGER: (_DELETE,)},
}
_KEY_ACTIONS = {_GET: "kms:Decrypt", _PUT: "kms:GenerateDataKey"}


@dataclass(frozen=True, slots=True)
class ArchiveBucket:
    """The bucket of the archive's parts, encrypted with *key* if given."""

    bucket: s3.IBucket
    key: kms.IKey | None

    @property
    def url(self) -> str:
        """Return the URL in the format of `tidings.http.settings`."""
        return f"s3://{self.bucket.bucket_name}"

    def allow(self, role: iam.Role, what: str) -> None:
        """Allow *role* what `deployment.Function.archive` calls *what*.

        A role that reads or deletes may also list parts.

        Listing is allowed without a condition on the prefix. With a condition, S3 would answer
        "access denied" for a missing part, which a reader could not distinguish from a real denial.
        """
        used: set[str] = set()
        for below, actions in _OBJECT_ACTIONS[what].items():
            allow(role, actions, [self.bucket.arn_for_objects(f"{below}*")])
            used.update(actions)
        if used & {_GET, _DELETE}:
            allow(role, ["s3:ListBucket"], [self.bucket.bucket_arn])
        of_key = sorted(_KEY_ACTIONS[each] for each in used & _KEY_ACTIONS.keys())
        if self.key is not None and of_key:
            allow_key(role, self.key.key_arn, of_key, service="s3")


def make_archive_bucket(scope: Construct, name: str, *, stage: Stage, key: kms.IKey | None) -> None:
    """Create the archive bucket without versioning.

    Only compaction and erasures change parts. Old versions would keep the data that they drop.
    """
    made = closed_bucket(Construct(scope, name), stage, rule=_lifecycle(stage), key=key)
    _publish(scope, stage, name, made)


def make_lake_bucket(scope: Construct, name: str, *, stage: Stage, key: kms.IKey | None) -> None:
    """Create a bucket for tables; their readers then need no access to the archive's bucket."""
    unfinished = s3.LifecycleRule(
        abort_incomplete_multipart_upload_after=cdk.Duration.days(UPLOAD_DAYS)
    )
    made = closed_bucket(Construct(scope, name), stage, rule=unfinished, key=key)
    _publish(scope, stage, name, made)


def make_given_up_bucket(scope: Construct, name: str, *, stage: Stage) -> None:
    """Create the bucket for discarded stream records, which Lambda stores completely."""
    _publish(scope, stage, name, private_bucket(Construct(scope, name), stage))


def _lifecycle(stage: Stage) -> s3.LifecycleRule:
    colder = s3.StorageClass.GLACIER_INSTANT_RETRIEVAL  # a replay cannot wait for a colder class
    days = stage.archive_cold_days
    return s3.LifecycleRule(
        abort_incomplete_multipart_upload_after=cdk.Duration.days(UPLOAD_DAYS),
        transitions=(
            None
            if days is None
            else [s3.Transition(storage_class=colder, transition_after=cdk.Duration.days(days))]
        ),
    )
