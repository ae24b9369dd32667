"""Scheduled jobs that update the tables of a feed for Athena, and compact its archive."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra import builds
from infra.names import prefix
from infra.parts.buckets import BELOW, ArchiveBucket
from infra.parts.machines import (
    SyncJob,
    job_role,
    logged_machine,
    machine_role,
    run_of,
    start_by_clock,
)
from infra.parts.policies import allow_all, allow_key
from infra.parts.tables import Tables
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.lake import iceberg
from tidings.lake.warehouse import EXTENSIONS

# The time limit of a run is this number of minutes, in addition to the configured minutes of the
# run. It takes fewer minutes to update the tables with the log of one day.
MINUTES = 6 * 60
COMPACT = {"compact": True}  # the input of a run that compacts the archive
TABLES = "tables"  # the tables' prefix in the lake's bucket
JARS = (iceberg.RUNTIME, iceberg.AWS)  # Iceberg's runtime, and its libraries for Glue and S3
_GLUE = (
    *("glue:GetDatabase", "glue:CreateDatabase", "glue:GetTable", "glue:GetTables"),
    *("glue:CreateTable", "glue:UpdateTable", "glue:DeleteTable"),
)


class Lake(Construct):
    """The state machine of the lake, with the ARN `arn`; it stores the tables in *bucket*.

    An execution of the machine updates the tables. With the input `COMPACT`, the execution compacts
    the archive instead.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        key: kms.IKey | None,
        tables: Tables,
        archive: ArchiveBucket,
        bucket: s3.IBucket,
        job: SyncJob,
        values: dict[str, str],
    ) -> None:
        super().__init__(scope, name)
        assert stage.lake is not None
        self._lake = stage.lake
        self.called = f"{prefix(stage)}lake"
        self.database = self.called.replace("-", "_")
        self._key, self._job, self._values = key, job, values
        self.bucket = bucket
        self.entry = assets.Asset(self, "Entry", path=str(builds.LAKE_JOB.entry))
        self.archive = assets.Asset(self, "Archive", path=str(builds.build_job(builds.LAKE_JOB)))
        self.jars = [assets.Asset(self, each.name, path=str(iceberg.jar(each))) for each in JARS]
        self.job_role = job_role(self, "JobRole")
        self._allow_job(tables, archive)
        self.role = machine_role(self, self.job_role, *run_of(job))
        self.arn = logged_machine(
            self,
            stage,
            called=self.called,
            role=self.role,
            definition=self._definition(archive),
            logs_data=True,  # the data only name feeds, buckets and tables, which are not secret
        ).attr_arn
        start_by_clock(self, stage.lake.every, self.arn)
        if stage.lake.compacts is not None:
            start_by_clock(self, stage.lake.compacts, self.arn, name="Compact", given=COMPACT)

    def _allow_job(self, tables: Tables, archive: ArchiveBucket) -> None:
        role, objects = self.job_role, self.bucket.arn_for_objects(f"{TABLES}/*")
        for what in ("read", "write"):
            archive.allow(role, what)
        allow_all(
            role,
            (("s3:DeleteObject",), [archive.bucket.arn_for_objects(f"{BELOW}*")]),
            (("s3:GetObject", "s3:PutObject", "s3:DeleteObject"), [objects]),
            (("s3:AbortMultipartUpload",), [objects]),
            (("s3:ListBucket",), [self.bucket.bucket_arn]),
            (_GLUE, self._catalog()),
        )
        self._job.allow_start(role, self.entry, self.archive, *self.jars)
        if self._key is not None:
            allow_key(role, self._key.key_arn, ["kms:Decrypt", "kms:GenerateDataKey"], "s3")
        for grant in deployment.LAKE_GRANTS:
            tables.allow(role, grant)
        tables.allow_key(role)

    def _catalog(self) -> list[str]:
        stack = cdk.Stack.of(self)
        names = ("catalog", f"database/{self.database}", f"table/{self.database}/*")
        return [stack.format_arn(service="glue", resource=name) for name in names]

    def _definition(self, archive: ArchiveBucket) -> dict[str, Any]:
        compacts = {"Variable": "$.compact", "IsPresent": True, "Next": "Compact"}
        return {
            "StartAt": "Which",
            "States": {
                "Which": {"Type": "Choice", "Choices": [compacts], "Default": "Follow"},
                "Follow": self._task(archive, ["--minutes", str(self._lake.minutes)]),
                "Compact": self._task(archive, ["--compact", "yes"]),
            },
        }

    def _task(self, archive: ArchiveBucket, more: list[str]) -> dict[str, Any]:
        run = self._job.run(
            entry=self.entry, role=self.job_role, settings=self._spark(), archive=self.archive
        )
        run["ExecutionTimeoutMinutes"] = MINUTES + self._lake.minutes
        run["JobDriver"]["SparkSubmit"]["EntryPointArguments"] = self._arguments(archive) + more
        return {
            "Type": "Task",
            "Resource": f"arn:{cdk.Aws.PARTITION}:states:::emr-serverless:startJobRun.sync",
            "Parameters": run | {"Name.$": "$$.Execution.Name"},
            "End": True,
        }

    def _arguments(self, archive: ArchiveBucket) -> list[str]:
        options = {
            "--feeds": self._values["TIDINGS_FEEDS"],
            "--archive": archive.url,
            "--table": f"s3://{self.bucket.bucket_name}/{TABLES}",
            "--glue": self.database,
            "--columns": json.dumps(self._lake.columns, separators=(",", ":")),
            "--log-table": self._values["TIDINGS_LOG_TABLE"],
            "--state-table": self._values["TIDINGS_STATE_TABLE"],
            "--control-table": self._values["TIDINGS_CONTROL_TABLE"],
        }
        return [part for pair in options.items() for part in pair]

    def _spark(self) -> dict[str, str]:
        return {"spark.jars": ",".join(each.s3_object_url for each in self.jars), **EXTENSIONS}
