"""State machines with logs and schedules; the state machine of syncs and its EMR Serverless job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra import builds
from infra.names import prefix
from infra.parts import sync_states
from infra.parts.buckets import SyncBucket
from infra.parts.function import TidingsFunction
from infra.parts.logs import MACHINE, count_failures, log_group
from infra.parts.policies import Statement, allow, allow_all, allow_job_role, principal
from infra.parts.sync_states import MAP_LABEL, Wiring
from infra.parts.tables import Tables
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.core import limits
from tidings.core.sync import workflow

RELEASE = "emr-spark-8.1.0"  # Spark 4.1.1, the tested version; supported until September 2029
PYTHON = "/usr/bin/python3.11"  # the release's default Python is older and cannot run our code
IDLE_MINUTES = 5  # the application stops after this time without a job
LOGS = "logs/"

# A driver of 2 vCPU and three executors of 4 vCPU fit in 16 vCPU, the initial limit of an account.
# A partition of half a million rows takes some 200 MB of memory. Each core works on one partition,
# in a Python process of its own.
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
    """Return the settings that make driver and executors run Python with the import path *path*."""
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
    """Return spark-submit's parameters for a job that imports its modules from *archive*."""
    unpacked = {"spark.archives": f"{archive.s3_object_url}#{_ENVIRONMENT}"}
    given = {**settings, **unpacked, **_python_settings(f"./{_ENVIRONMENT}"), **more}
    return " ".join(f"--conf {key}={value}" for key, value in given.items())


class SyncJob(Construct):
    """The EMR Serverless application of a stage, and the role and parameters of the sync job."""

    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, tables: Tables, syncs: SyncBucket
    ) -> None:
        super().__init__(scope, name)
        self.application = spark_application(self, f"{prefix(stage)}sync", CAPACITY)
        self.role = job_role(self, "Role")
        self.bucket = syncs.bucket
        self.entry = assets.Asset(self, "Entry", path=str(builds.SYNC_JOB.entry))
        self.archive = assets.Asset(self, "Archive", path=str(builds.build_job(builds.SYNC_JOB)))
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
        """Return the parameters of `startJobRun` without the job's arguments, for Step Functions.

        The defaults are those of the sync job. For another job on the same application, pass its
        *entry*, its *role*, additional *settings*, and the *archive* that it imports from.
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
        """Allow a job to read the archive and *files*, needed to start, and to write its log."""
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


# CloudWatch Logs has no resource type for the delivery of logs, so these actions are allowed for
# all resources.
LOG_DELIVERY = (
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)

SCHEDULER = "scheduler.amazonaws.com"


def machine_role(scope: Construct, jobs: iam.Role, *statements: Statement) -> iam.Role:
    """Return the role of a machine that writes a log and starts jobs with the role *jobs*.

    *statements* are the machine's other permissions.
    """
    role = iam.Role(scope, "Role", assumed_by=principal("states.amazonaws.com"))
    allow_all(role, *statements, (LOG_DELIVERY, ["*"]))
    allow_job_role(role, jobs)
    return role


def logged_machine(
    scope: Construct,
    stage: Stage,
    *,
    called: str,
    role: iam.Role,
    definition: dict[str, Any],
    logs_data: bool,
) -> stepfunctions.CfnStateMachine:
    """Return a state machine with the name *called* that writes a log.

    CloudFormation creates the machine after the permissions of *role*. With *logs_data*, the log
    also contains the input and output of each step.
    """
    group = log_group(scope, "Logs", stage, path=f"/aws/vendedlogs/states/{called}")
    count_failures(group, stage, MACHINE)
    machine = stepfunctions.CfnStateMachine(
        scope,
        "Machine",
        state_machine_name=called,
        role_arn=role.role_arn,
        definition_string=cdk.Stack.of(scope).to_json_string(definition),
        logging_configuration={
            "level": "ALL",
            "includeExecutionData": logs_data,
            "destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": group.log_group_arn}}],
        },
    )
    machine.node.add_dependency(role)
    return machine


def start_by_clock(
    scope: Construct,
    expression: str,
    machine: str,
    *,
    name: str = "Clock",
    given: dict[str, Any] | None = None,
) -> None:
    """Start *machine* on the schedule *expression*, with the input *given* if it is not None."""
    target = {"arn": machine, "roleArn": starting_role(scope, name, SCHEDULER, machine)}
    if given is not None:
        target["input"] = json.dumps(given)
    schedule(scope, name, expression, target)


def starting_role(scope: Construct, name: str, service: str, machine: str) -> str:
    """Return the ARN of a role with which *service* may start *machine* and do nothing else."""
    role = iam.Role(scope, f"{name}Role", assumed_by=principal(service))
    allow(role, ("states:StartExecution",), [machine])
    return role.role_arn


def schedule(scope: Construct, name: str, expression: str, target: dict[str, str]) -> None:
    scheduler.CfnSchedule(
        scope,
        name,
        schedule_expression=expression,
        flexible_time_window={"mode": "OFF"},
        target=target,
    )


# Step Functions creates an EventBridge rule with this name to be notified of the end of a job.
_JOB_RULE = "StepFunctionsGetEventsForEMRServerlessJobRule"


class SyncMachine(Construct):
    """The state machine of syncs, with the ARN `arn`; it sends its notifications to `topic`."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        key: kms.IKey | None,
        tables: Tables,
        syncs: SyncBucket,
        job: SyncJob,
        steer: TidingsFunction,
        correct: TidingsFunction,
    ) -> None:
        super().__init__(scope, name)
        self.called = f"{prefix(stage)}sync"
        self.topic = sns.Topic(self, "Topic", enforce_ssl=True, master_key=key)
        self._functions = [steer.live.function_arn, correct.live.function_arn]
        self._wiring = Wiring(
            partition=cdk.Aws.PARTITION,
            region=cdk.Aws.REGION,
            bucket=syncs.bucket.bucket_name,
            topic=self.topic.topic_arn,
            state_table_name=tables.by_name["state"].table_name,
            state_table_arn=tables.by_name["state"].table_arn,
            steer=self._functions[0],
            correct=self._functions[1],
            job=job.run(),
        )
        self.role = machine_role(self, job.role, *self._statements(syncs, job))
        if key is not None:
            allow(self.role, ("kms:Decrypt", "kms:GenerateDataKey"), [key.key_arn])
        tables.allow_key(self.role)
        self.arn = logged_machine(
            self,
            stage,
            called=self.called,
            role=self.role,
            definition=sync_states.definition(self._wiring),
            logs_data=False,  # the data contain the token with which a plan is approved
        ).attr_arn

    def _statements(self, syncs: SyncBucket, job: SyncJob) -> list[Statement]:
        """Return the permissions that the steps of the machine need."""
        objects = syncs.bucket.arn_for_objects
        return [
            (("lambda:InvokeFunction",), self._functions),
            (("dynamodb:DescribeTable",), [self._wiring.state_table_arn]),
            (("dynamodb:ExportTableToPointInTime",), [self._wiring.state_table_arn]),
            (("dynamodb:DescribeExport",), [f"{self._wiring.state_table_arn}/export/*"]),
            (
                ("s3:PutObject", "s3:AbortMultipartUpload"),
                [objects(f"{workflow.EXPORTS}*"), objects(f"{workflow.APPROVALS}*")],
            ),
            # An export requires this permission, although the bucket has no ACLs.
            (("s3:PutObjectAcl",), [objects(f"{workflow.EXPORTS}*")]),
            (("s3:ListBucket",), [syncs.bucket.bucket_arn]),
            *run_of(job),
            (("sns:Publish",), [self.topic.topic_arn]),
            (("states:StartExecution",), [self._arn("stateMachine")]),
            (("states:DescribeExecution", "states:StopExecution"), self._executions()),
        ]

    def _executions(self) -> list[str]:
        """Return the ARNs of the executions of the machine, and of the children of its map."""
        return [self._arn("execution", ":*"), self._arn("execution", f"/{MAP_LABEL}:*")]

    def _arn(self, resource: str, rest: str = "") -> str:
        """Build an ARN from the name of the machine.

        A reference to the machine would be circular, because the machine depends on its role.
        """
        return cdk.Stack.of(self).format_arn(
            service="states",
            resource=resource,
            resource_name=self.called + rest,
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )


def run_of(job: SyncJob) -> list[Statement]:
    """Return the statements of a role that runs the application of *job* and awaits them."""
    application = job.application.attr_arn
    rule = cdk.Stack.of(job).format_arn(service="events", resource="rule", resource_name=_JOB_RULE)
    return [
        (("emr-serverless:StartJobRun",), [application]),
        (("emr-serverless:GetJobRun", "emr-serverless:CancelJobRun"), [f"{application}/jobruns/*"]),
        (("events:PutTargets", "events:PutRule", "events:DescribeRule"), [rule]),
    ]


class SyncStarts(Construct):
    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, syncs: SyncBucket, machine: SyncMachine
    ) -> None:
        super().__init__(scope, name)
        self._on_upload(syncs, machine.arn)
        if stage.syncs:
            role = starting_role(self, "Clock", SCHEDULER, machine.arn)
            for number, sync in enumerate(stage.syncs, 1):
                target = {"arn": machine.arn, "roleArn": role, "input": json.dumps(sync.request)}
                schedule(self, f"Schedule{number}", sync.expression, target)

    def _on_upload(self, syncs: SyncBucket, machine: str) -> None:
        """Start an execution for each uploaded object.

        A rule cannot distinguish a dump from one of its parts, so the function `steer` does.
        """
        started: dict[str, Any] = {
            "source": ["aws.s3"],
            "detail-type": ["Object Created"],
            "detail": {
                "bucket": {"name": [syncs.bucket.bucket_name]},
                "object": {"key": [{"prefix": workflow.DUMPS}]},
            },
        }
        events.CfnRule(
            self,
            "Uploads",
            description="An uploaded dump starts a sync",
            event_pattern=started,
            targets=[
                events.CfnRule.TargetProperty(
                    id="sync",
                    arn=machine,
                    role_arn=starting_role(self, "Upload", "events.amazonaws.com", machine),
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        input_paths_map={"key": "$.detail.object.key"},
                        input_template='{"key": <key>}',
                    ),
                )
            ],
        )
