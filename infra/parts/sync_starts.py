"""What starts a sync by itself: an upload, or the clock where a stage says so."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct
from tidings.core.sync import workflow

from infra.parts.sync_bucket import SyncBucket
from infra.parts.sync_machine import SyncMachine
from infra.settings import Stage, SyncSchedule


class SyncStarts(Construct):
    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, syncs: SyncBucket, machine: SyncMachine
    ) -> None:
        super().__init__(scope, name)
        self._machine = machine
        self._on_upload(syncs)
        if stage.syncs:
            role = self._role("Clock", "scheduler.amazonaws.com")
            for number, schedule in enumerate(stage.syncs, 1):
                self._by_clock(f"Schedule{number}", schedule, role)

    def _on_upload(self, syncs: SyncBucket) -> None:
        """The function `steer` tells a dump from a part of one; a rule cannot."""
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
                    arn=self._machine.arn,
                    role_arn=self._role("Upload", "events.amazonaws.com").role_arn,
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        input_paths_map={"key": "$.detail.object.key"},
                        input_template='{"key": <key>}',
                    ),
                )
            ],
        )

    def _by_clock(self, name: str, schedule: SyncSchedule, role: iam.Role) -> None:
        scheduler.CfnSchedule(
            self,
            name,
            schedule_expression=schedule.expression,
            flexible_time_window={"mode": "OFF"},
            target={
                "arn": self._machine.arn,
                "roleArn": role.role_arn,
                "input": json.dumps(schedule.request),
            },
        )

    def _role(self, name: str, service: str) -> iam.Role:
        """May start this machine and nothing else."""
        account = {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
        principal = iam.ServicePrincipal(service, conditions=account)
        role = iam.Role(self, f"{name}Role", assumed_by=principal)
        role.add_to_policy(
            iam.PolicyStatement(actions=["states:StartExecution"], resources=[self._machine.arn])
        )
        return role
