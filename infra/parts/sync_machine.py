"""The state machine of syncs: its role, its log, its topic, and its triggers."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.names import prefix
from infra.parts import sync_states
from infra.parts.buckets import SyncBucket
from infra.parts.function import TidingsFunction
from infra.parts.machine import (
    SCHEDULER,
    logged_machine,
    machine_role,
    schedule,
    starting_role,
)
from infra.parts.policies import Statement, allow
from infra.parts.sync_job import SyncJob
from infra.parts.sync_states import MAP_LABEL, Wiring
from infra.parts.tables import Tables
from infra.settings import Stage
from tidings.core.sync import workflow

# Step Functions creates a rule of this name to be notified of the end of a job.
_JOB_RULE = "StepFunctionsGetEventsForEMRServerlessJobRule"


class SyncMachine(Construct):
    """The state machine of syncs: start `arn`, subscribe to `topic`."""

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
            logs_data=False,  # readers of a token could answer for another person
        ).attr_arn

    def _statements(self, syncs: SyncBucket, job: SyncJob) -> list[Statement]:
        """Return one statement for each kind of step."""
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
            # An export requests it, though a bucket without ACLs has nothing to set.
            (("s3:PutObjectAcl",), [objects(f"{workflow.EXPORTS}*")]),
            (("s3:ListBucket",), [syncs.bucket.bucket_arn]),
            *run_of(job),
            (("sns:Publish",), [self.topic.topic_arn]),
            (("states:StartExecution",), [self._named("stateMachine")]),
            (("states:DescribeExecution", "states:StopExecution"), self._executions()),
        ]

    def _executions(self) -> list[str]:
        """Return the ARNs of the executions of the machine and of its parts."""
        return [self._named("execution", ":*"), self._named("execution", f"/{MAP_LABEL}:*")]

    def _named(self, resource: str, rest: str = "") -> str:
        """Return an ARN by name: the machine depends on its role."""
        return cdk.Stack.of(self).format_arn(
            service="states",
            resource=resource,
            resource_name=self.called + rest,
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )


def run_of(job: SyncJob) -> list[Statement]:
    """
    Return the statements of a role that runs jobs on the application of *job* and waits for them.
    """
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
        """
        Start a sync for an uploaded object; `steer` distinguishes dumps from parts, a rule cannot.
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
