"""The comparison of a dump on EMR Serverless, which costs nothing while no job runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra import build_job
from infra.names import prefix
from infra.parts.buckets import SyncBucket
from infra.parts.policies import allow_all
from infra.parts.tables import Tables
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.core import limits
from tidings.core.sync import workflow

RELEASE = "emr-spark-8.1.0"  # Spark 4.1.1, the tested version; supported until September 2029
PYTHON = "/usr/bin/python3.11"  # the release's default Python is older and cannot read our code
IDLE_MINUTES = 5  # the application stops after this time without a job
LOGS = "logs/"

# A driver of 2 vCPU and three executors of 4: the initial limit of an account is 16 vCPU. A
# partition of half a million rows takes some 200 MB per core, and each core has a Python process.
CAPACITY = {"cpu": "16 vCPU", "memory": "112 GB", "disk": "500 GB"}
SPARK = {
    "spark.driver.cores": "2",
    "spark.driver.memory": "8g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "16g",
    "spark.executor.memoryOverhead": "6g",
    "spark.emr-serverless.executor.disk": "100G",
    "spark.dynamicAllocation.maxExecutors": "3",
}
_READ = (workflow.DUMPS, workflow.UPLOADS, workflow.EXPORTS, workflow.PLANS)
_ENVIRONMENT = "environment"  # the folder to which the archive is unpacked
_NO_MORE: Mapping[str, str] = MappingProxyType({})


def _python_settings(path: str) -> dict[str, str]:
    """Return the Python of driver and executors, and *path* as its import path."""
    variables = {"PYSPARK_PYTHON": PYTHON, "PYTHONPATH": path}
    driver = {f"spark.emr-serverless.driverEnv.{name}": value for name, value in variables.items()}
    driver["spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"] = PYTHON
    return driver | {f"spark.executorEnv.{name}": value for name, value in variables.items()}


def spark_application(
    scope: Construct, name: str, capacity: dict[str, str], **others: Any
) -> emr.CfnApplication:
    """Return the application *name*, which starts with a job and stops when it is idle."""
    return emr.CfnApplication(
        scope,
        "Application",
        name=name,
        type="SPARK",
        release_label=RELEASE,
        architecture="ARM64",
        auto_start_configuration={"enabled": True},
        auto_stop_configuration={"enabled": True, "idleTimeoutMinutes": IDLE_MINUTES},
        maximum_capacity=capacity,
        **others,
    )


def job_role(scope: Construct, name: str) -> iam.Role:
    """Return a role for jobs."""
    service = iam.ServicePrincipal("emr-serverless.amazonaws.com")
    return iam.Role(scope, name, assumed_by=service)


def submit_parameters(
    settings: Mapping[str, str], archive: assets.Asset, more: Mapping[str, str] = _NO_MORE
) -> str:
    """Return the parameters of a job that imports from *archive*."""
    unpacked = {"spark.archives": f"{archive.s3_object_url}#{_ENVIRONMENT}"}
    given = {**settings, **unpacked, **_python_settings(f"./{_ENVIRONMENT}"), **more}
    return " ".join(f"--conf {key}={value}" for key, value in given.items())


class SyncJob(Construct):
    """The application, the role of its jobs, and their arguments."""

    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, tables: Tables, syncs: SyncBucket
    ) -> None:
        super().__init__(scope, name)
        self.application = spark_application(self, f"{prefix(stage)}sync", CAPACITY)
        self.role = job_role(self, "Role")
        self.bucket = syncs.bucket
        self.entry = assets.Asset(self, "Entry", path=str(build_job.ENTRY))
        self.archive = assets.Asset(self, "Archive", path=str(build_job.build()))
        self._allow_objects()
        for grant in deployment.JOB_GRANTS:
            tables.allow(self.role, grant)
        tables.allow_key(self.role)

    def run(
        self,
        *,
        entry: assets.Asset | None = None,
        role: iam.Role | None = None,
        settings: Mapping[str, str] = _NO_MORE,
        archive: assets.Asset | None = None,
    ) -> dict[str, Any]:
        """
        Return the parameters of `startJobRun` without arguments, as Step Functions spells them.

        For another job on the same application pass its *entry*, its *role*, additional *settings*,
        and the *archive* that it imports from.
        """
        logs = {"LogUri": f"s3://{self.bucket.bucket_name}/{LOGS}"}
        return {
            "ApplicationId": self.application.attr_application_id,
            "ExecutionRoleArn": (role or self.role).role_arn,
            "ExecutionTimeoutMinutes": limits.SYNC_JOB_MINUTES,
            "JobDriver": {
                "SparkSubmit": {
                    "EntryPoint": (entry or self.entry).s3_object_url,
                    "SparkSubmitParameters": submit_parameters(
                        SPARK, archive or self.archive, settings
                    ),
                }
            },
            "ConfigurationOverrides": {
                "MonitoringConfiguration": {"S3MonitoringConfiguration": logs}
            },
        }

    def allow_start(self, role: iam.Role, *files: assets.Asset) -> None:
        """
        Allow reading the entry and jars that a job needs before it starts, and writing its log.
        """
        ours = [each.bucket.arn_for_objects(each.s3_object_key) for each in (*files, self.archive)]
        logs = self.bucket.arn_for_objects(f"{LOGS}*")
        allow_all(role, (("s3:GetObject",), ours), (("s3:PutObject",), [logs]))

    def _allow_objects(self) -> None:
        """Allow reading dumps and exports, and writing the plan."""
        objects = self.bucket.arn_for_objects
        self.allow_start(self.role, self.entry)
        allow_all(
            self.role,
            (("s3:GetObject",), [objects(f"{each}*") for each in _READ]),
            (("s3:ListBucket",), [self.bucket.bucket_arn]),
            (("s3:PutObject", "s3:AbortMultipartUpload"), [objects(f"{workflow.PLANS}*")]),
            (("s3:DeleteObject",), [objects(f"{workflow.PLANS}*")]),
        )
