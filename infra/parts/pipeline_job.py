"""A pipeline that is kept running on EMR Serverless.

Every few minutes a state machine checks if the deployed version of the pipeline is running. If not,
the machine ends the runs of earlier deployments and starts the pipeline. So a new file of the
pipeline is used a few minutes after its deployment. Two runs may overlap without harm, because only
the run that holds the consumer's lease writes to a store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra import ROOT, builds
from infra.names import prefix
from infra.parts.logs import count_lines, log_group
from infra.parts.machines import (
    job_role,
    logged_machine,
    machine_role,
    spark_application,
    start_by_clock,
    submit_parameters,
)
from infra.parts.policies import allow, allow_all
from infra.settings import PipelineRun, Stage
from tidings.core.limits import RETAINED_ALARM_BYTES, WAITING_ALARM_S

LOOK = "rate(5 minutes)"  # interval of the check, which restarts a pipeline that has ended
DRAIN_S = 30  # the time for a store to finish its current batch when a run ends
FAILURES_PER_HOUR = 5  # a run with more failed attempts ends; the next check starts a new run
RUNS_MAX = 50  # the maximum number of runs in one listing; usually one or two exist
# The driver does all the work. Spark requires an executor, so one of the smallest size is started.
CAPACITY = {"cpu": "4 vCPU", "memory": "16 GB", "disk": "60 GB"}
SPARK = {
    "spark.driver.cores": "1",
    "spark.driver.memory": "3g",
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.executor.instances": "1",
    "spark.dynamicAllocation.enabled": "false",
}
BUS = "default"
# Matches the events `metrics` of a pipeline whose limits are exceeded, each by the metric of an
# alarm. The events have no stage, but the log group has.
WAITING_LINES = {
    "PipelineWaiting": f"{{ $.waiting_s >= {WAITING_ALARM_S} }}",
    "PipelineRetainedBytes": f"{{ $.retained_bytes >= {RETAINED_ALARM_BYTES} }}",
}
_UNDER_WAY = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING")


class PipelineJob(Construct):
    """The state machine that supervises a pipeline; `arn` is its ARN."""

    def __init__(self, scope: Construct, name: str, *, stage: Stage, run: PipelineRun) -> None:
        super().__init__(scope, name)
        self.called = f"{prefix(stage)}pipeline-{run.name}"
        self.archive = assets.Asset(self, "Archive", path=str(_pack(run)))
        self.entry = assets.Asset(self, "Entry", path=str(builds.PIPELINE_JOB.entry))
        self.application = self._application(run)
        self.logs = log_group(self, "JobLogs", stage, path=f"/aws/emr-serverless/{self.called}")
        for metric, pattern in WAITING_LINES.items():
            count_lines(self.logs, stage, pattern, metric)
        self.job_role = job_role(self, "JobRole")
        self._allow_job(run)
        application = self.application.attr_arn
        self.role = machine_role(
            self,
            self.job_role,
            (("emr-serverless:ListJobRuns", "emr-serverless:StartJobRun"), [application]),
            (("emr-serverless:CancelJobRun",), [f"{application}/jobruns/*"]),
        )
        self.arn = logged_machine(
            self,
            stage,
            called=self.called,
            role=self.role,
            definition=self._definition(),
            logs_data=True,  # the data only contain ids of runs, which are not secret
        ).attr_arn
        start_by_clock(self, LOOK, self.arn)

    def _application(self, run: PipelineRun) -> emr.CfnApplication:
        network = emr.CfnApplication.NetworkConfigurationProperty(
            subnet_ids=list(run.subnets), security_group_ids=list(run.security_groups)
        )
        return spark_application(self, self.called, CAPACITY, network_configuration=network)

    def _allow_job(self, run: PipelineRun) -> None:
        files = (self.entry, self.archive)
        ours = [each.bucket.arn_for_objects(each.s3_object_key) for each in files]
        bus = cdk.Stack.of(self).format_arn(service="events", resource=f"event-bus/{BUS}")
        allow_all(
            self.job_role,
            (("s3:GetObject",), ours),
            (("events:PutEvents",), [bus]),
            (("logs:CreateLogStream", "logs:PutLogEvents"), [self.logs.log_group_arn]),
            (("logs:DescribeLogStreams",), [self.logs.log_group_arn]),
            (("logs:DescribeLogGroups",), ["*"]),
        )
        if run.secrets:
            allow(self.job_role, ("secretsmanager:GetSecretValue",), run.secrets)

    def _definition(self) -> dict[str, Any]:
        application, version = self.application.attr_application_id, self.archive.asset_hash
        look = _task(
            "listJobRuns",
            {"ApplicationId": application, "States": list(_UNDER_WAY), "MaxResults": RUNS_MAX},
            ResultSelector={
                "runs.$": f"States.ArrayContains($.JobRuns[*].Name, '{version}')",
                "others.$": "$.JobRuns[*].Id",
            },
            Next="DoesItRun",
        )
        cancel = _task(
            "cancelJobRun",
            {
                "ApplicationId": application,
                "JobRunId.$": "$",
                "ShutdownGracePeriodInSeconds": DRAIN_S,
            },
            End=True,
        )
        runs = {"Variable": "$.runs", "BooleanEquals": True, "Next": "ItRuns"}
        states = {
            "Look": look,
            "DoesItRun": {"Type": "Choice", "Choices": [runs], "Default": "EndOthers"},
            "ItRuns": {"Type": "Succeed"},
            "EndOthers": {
                "Type": "Map",
                "ItemsPath": "$.others",
                "ItemProcessor": {"StartAt": "Cancel", "States": {"Cancel": cancel}},
                "Next": "Start",
            },
            "Start": _task("startJobRun", self._start_parameters(version), End=True),
        }
        return {"StartAt": "Look", "States": states, "TimeoutSeconds": 300}

    def _start_parameters(self, version: str) -> dict[str, Any]:
        submitted = {
            "EntryPoint": self.entry.s3_object_url,
            "EntryPointArguments": ["--events-bus", BUS, builds.PIPELINE_FILE],
            "SparkSubmitParameters": submit_parameters(SPARK, self.archive),
        }
        logged = {"Enabled": True, "LogGroupName": self.logs.log_group_name}
        return {
            "ApplicationId": self.application.attr_application_id,
            "ClientToken.$": "$$.Execution.Name",
            "ExecutionRoleArn": self.job_role.role_arn,
            "Name": version,
            "Mode": "STREAMING",
            "RetryPolicy": {"MaxFailedAttemptsPerHour": FAILURES_PER_HOUR},
            "JobDriver": {"SparkSubmit": submitted},
            "ConfigurationOverrides": {
                "MonitoringConfiguration": {"CloudWatchLoggingConfiguration": logged}
            },
        }


def _pack(run: PipelineRun) -> Path:
    path = ROOT / run.path
    return path if path.suffix == ".tgz" else builds.build_job(builds.PIPELINE_JOB, run.name, path)


def _task(action: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    resource = f"arn:{cdk.Aws.PARTITION}:states:::aws-sdk:emrserverless:{action}"
    return {"Type": "Task", "Resource": resource, "Parameters": parameters, **more}
