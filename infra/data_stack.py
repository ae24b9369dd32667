"""The stack of a stage's tables and buckets, and of the key that encrypts them.

This stack is updated rarely, so it is separate from the stack of the functions. If the stage keeps
its data, this stack is protected from deletion.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_backup as backup
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra import suppressions
from infra.parts import buckets
from infra.parts.buckets import ArchiveBucket, SyncBucket, find_bucket
from infra.parts.policies import principal, removal_policy
from infra.parts.tables import (
    Tables,
    find_key,
    find_table,
    make_leader_lease_table,
    make_tables,
    stage_key,
)
from infra.settings import LOCK_GRACE_DAYS, Copies, InvalidSetting, Stage
from tidings.aws.config import deployment
from tidings.aws.config.stages import data_stack_name, stack_name

BACKUP_POLICY = "service-role/AWSBackupServiceRolePolicyForBackup"
SYNCS, ARCHIVE, LAKE, GIVEN_UP = "Syncs", "Archive", "Lake", "GivenUp"


class DataStack(cdk.Stack):
    """All resources of a stage that hold data."""

    def __init__(self, scope: Construct, stage: Stage) -> None:
        super().__init__(
            scope,
            data_stack_name(stage.name),
            description=f"Tidings, {stage.name}: tables, buckets and their key",
            termination_protection=stage.keep_data,
        )
        key = stage_key(self, "Key", stage)
        self.tables = make_tables(self, "Tables", stage=stage, key=key)
        buckets.make_sync_bucket(self, SYNCS, stage=stage)
        buckets.make_given_up_bucket(self, GIVEN_UP, stage=stage)
        if stage.archive:
            buckets.make_archive_bucket(self, ARCHIVE, stage=stage, key=key)
        if stage.archive and stage.lake is not None:
            buckets.make_lake_bucket(self, LAKE, stage=stage, key=key)
        if stage.copies is not None:
            Vault(self, "Copies", stage=stage, copies=stage.copies, tables=self.tables)
        if stage.seats:
            make_leader_lease_table(self, "Seats", stage=stage)
        suppressions.apply(self)


class StageData(Construct):
    """References from another stack to the resources of the data stack of *stage*."""

    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        self._stage = stage
        self.key: kms.IKey | None = find_key(self, stage)
        by_name = {table.name: find_table(self, stage, table) for table in deployment.TABLES}
        self.tables = Tables(by_name, self.key, stage)
        self.syncs = SyncBucket(self._bucket(SYNCS))
        self.given_up = self._bucket(GIVEN_UP)
        self.archive = ArchiveBucket(self._bucket(ARCHIVE), self.key) if stage.archive else None

    def lake(self) -> s3.IBucket:
        """Return the bucket of the lake's tables; only for a stage with a lake."""
        return self._bucket(LAKE)

    def _bucket(self, name: str) -> s3.IBucket:
        return find_bucket(self, name, stage=self._stage)


class Vault(Construct):
    """Backups of the recoverable *tables*, each copied to another account.

    The stage needs a key of its own, because the other account has to decrypt the copies and cannot
    use a key managed by AWS.
    """

    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, copies: Copies, tables: Tables
    ) -> None:
        super().__init__(scope, name)
        if tables.key is None:
            raise InvalidSetting("copies", copies, "None in a stage without customer_key")
        called = stack_name(stage.name)
        lock = {"minRetentionDays": copies.lock_days, "changeableForDays": LOCK_GRACE_DAYS}
        vault = backup.CfnBackupVault(
            self,
            "Vault",
            backup_vault_name=called,
            encryption_key_arn=tables.key.key_arn,
            # The lock becomes permanent after `changeableForDays`. Without this value, an
            # administrator could always remove the lock.
            lock_configuration=lock if copies.lock_days else None,
        )
        vault.apply_removal_policy(removal_policy(stage))
        kept_for = {"deleteAfterDays": copies.days}
        copied = {"destinationBackupVaultArn": copies.vault_arn, "lifecycle": kept_for}
        rule = {
            "ruleName": called,
            "targetBackupVault": vault.ref,
            "scheduleExpression": copies.every,
            "lifecycle": kept_for,
            "copyActions": [copied],
        }
        plan = backup.CfnBackupPlan(
            self, "Plan", backup_plan={"backupPlanName": called, "backupPlanRule": [rule]}
        )
        role = iam.Role(self, "Role", assumed_by=principal("backup.amazonaws.com"))
        role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(BACKUP_POLICY))
        recoverable = [each.name for each in deployment.TABLES if each.recoverable]
        backup.CfnBackupSelection(
            self,
            "Tables",
            backup_plan_id=plan.ref,
            backup_selection={
                "selectionName": called,
                "iamRoleArn": role.role_arn,
                "resources": [tables.by_name[each].table_arn for each in recoverable],
            },
        )
        account = cdk.Arn.split(copies.vault_arn, cdk.ArnFormat.COLON_RESOURCE_NAME).account
        tables.key.grant(iam.AccountPrincipal(account), "kms:Decrypt", "kms:DescribeKey")
