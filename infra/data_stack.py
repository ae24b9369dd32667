"""
The stored data of a stage: its tables, its buckets and their key, separate from the functions.

The stack is updated rarely. If the stage keeps its data, it is protected from deletion.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra import suppressions
from infra.parts import buckets
from infra.parts.buckets import ArchiveBucket, SyncBucket, find_bucket
from infra.parts.tables import Tables, find_key, find_table, make_seats, make_tables, stage_key
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.aws.config.stages import data_stack_name

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
        make_tables(self, "Tables", stage=stage, key=key)
        buckets.make_sync_bucket(self, SYNCS, stage=stage)
        buckets.make_given_up_bucket(self, GIVEN_UP, stage=stage)
        if stage.archive:
            buckets.make_archive_bucket(self, ARCHIVE, stage=stage, key=key)
        if stage.archive and stage.lake is not None:
            buckets.make_lake_bucket(self, LAKE, stage=stage, key=key)
        if stage.seats:
            make_seats(self, "Seats", stage=stage)
        suppressions.apply(self)


class StageData(Construct):
    """The resources of the data stack of *stage*, as references in another stack."""

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
