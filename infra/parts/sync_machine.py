"""The state machine of syncs: its role, its log, and the topic that tells how they end."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct
from tidings.core.sync import workflow

from infra.names import prefix
from infra.parts import sync_states
from infra.parts.function import TidingsFunction
from infra.parts.machine import LOG_DELIVERY, logged_machine, principal
from infra.parts.rights import allow, allow_job_role
from infra.parts.sync_bucket import SyncBucket
from infra.parts.sync_job import SyncJob
from infra.parts.sync_states import MAP_LABEL, Wiring
from infra.parts.tables import Tables
from infra.settings import Stage

# Step Functions hears of the end of a job by a rule of this name, which it makes itself.
_JOB_RULE = "StepFunctionsGetEventsForEMRServerlessJobRule"


class SyncMachine(Construct):
    """`arn` is what to start; `topic` what to subscribe to."""

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
        self.role = iam.Role(self, "Role", assumed_by=principal("states.amazonaws.com"))
        self._key = key
        self._functions = [steer.function.function_arn, correct.function.function_arn]
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
        self._allow(syncs, job, tables)
        tables.allow_key(self.role)
        self.machine = self._machine(stage)
        self.arn = self.machine.attr_arn

    def _machine(self, stage: Stage) -> stepfunctions.CfnStateMachine:
        return logged_machine(
            self,
            stage,
            called=self.called,
            role=self.role,
            definition=sync_states.definition(self._wiring),
            logs_data=False,  # a token would let its readers answer for somebody else
        )

    def _allow(self, syncs: SyncBucket, job: SyncJob, tables: Tables) -> None:
        """One statement for each kind of step."""
        objects = syncs.bucket.arn_for_objects
        runs = f"{job.application.attr_arn}/jobruns/*"
        for actions, resources in (
            (("lambda:InvokeFunction",), self._functions),
            (("dynamodb:DescribeTable",), [self._wiring.state_table_arn]),
            (("dynamodb:ExportTableToPointInTime",), [self._wiring.state_table_arn]),
            (("dynamodb:DescribeExport",), [f"{self._wiring.state_table_arn}/export/*"]),
            (
                ("s3:PutObject", "s3:AbortMultipartUpload"),
                [objects(f"{workflow.EXPORTS}*"), objects(f"{workflow.APPROVALS}*")],
            ),
            # An export asks for it, though a bucket without ACLs has nothing to set.
            (("s3:PutObjectAcl",), [objects(f"{workflow.EXPORTS}*")]),
            (("s3:ListBucket",), [syncs.bucket.bucket_arn]),
            (("emr-serverless:StartJobRun",), [job.application.attr_arn]),
            (("emr-serverless:GetJobRun", "emr-serverless:CancelJobRun"), [runs]),
            (("events:PutTargets", "events:PutRule", "events:DescribeRule"), [job_rule(self)]),
            (("sns:Publish",), [self.topic.topic_arn]),
            (("states:StartExecution",), [self._named("stateMachine")]),
            (("states:DescribeExecution", "states:StopExecution"), self._executions()),
            (LOG_DELIVERY, ["*"]),
        ):
            allow(self.role, actions, resources)
        allow_job_role(self.role, job.role)
        if self._key is not None:
            allow(self.role, ("kms:Decrypt", "kms:GenerateDataKey"), [self._key.key_arn])

    def _executions(self) -> list[str]:
        """Ours, and those of the parts."""
        return [self._named("execution", ":*"), self._named("execution", f"/{MAP_LABEL}:*")]

    def _named(self, resource: str, rest: str = "") -> str:
        """By its name: the machine needs its role first."""
        return cdk.Stack.of(self).format_arn(
            service="states",
            resource=resource,
            resource_name=self.called + rest,
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )


def job_rule(scope: Construct) -> str:
    return cdk.Stack.of(scope).format_arn(
        service="events", resource="rule", resource_name=_JOB_RULE
    )
