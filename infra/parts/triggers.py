"""Triggers of the blueprint's functions: streams of tables, and schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.parts.function import TidingsFunction
from infra.parts.policies import allow, allow_all
from tidings.aws.config import deployment

KEY_PREFIX = "aws/lambda"  # Lambda's prefix: aws/lambda/<mapping>/<shard>/<date>/...

_READ = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")


class StreamSource(Construct):
    """The event source mapping of a table and a function; `mapping` identifies its metrics."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        source: deployment.StreamSource,
        stream_arn: str,
        table_arn: str,
        target: TidingsFunction,
        given_up: s3.IBucket,
        counted: bool = False,
    ) -> None:
        """
        Create the mapping.

        Records that could not be handled are stored completely in *given_up*. *counted*: AWS counts
        its records, for alarms; each count is billed as a metric.
        """
        super().__init__(scope, name)
        self.source = source
        self.target = target
        _allow(target.role, stream_arn, table_arn, given_up)
        # The CDK's own mapping would grant reading, writing and deleting in the whole bucket.
        self.mapping = lambda_.CfnEventSourceMapping(
            self,
            "Mapping",
            function_name=target.live.function_arn,
            event_source_arn=stream_arn,
            starting_position="TRIM_HORIZON",
            batch_size=source.batch_size,
            maximum_batching_window_in_seconds=source.window_s,
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            maximum_record_age_in_seconds=source.age_max_s,
            maximum_retry_attempts=source.retries_max,
            destination_config={"onFailure": {"destination": given_up.bucket_arn}},
            metrics_config={"metrics": ["EventCount"]} if counted else None,
            filter_criteria=_filter(source),
        )
        # Lambda checks the role's permissions when the mapping is created.
        self.mapping.node.add_dependency(target.role)


def _filter(source: deployment.StreamSource) -> dict[str, object] | None:
    if source.kinds == deployment.KINDS:
        return None
    return {"filters": [{"pattern": json.dumps({"eventName": list(source.kinds)})}]}


def _allow(role: iam.Role, stream_arn: str, table_arn: str, bucket: s3.IBucket) -> None:
    allow_all(
        role,
        (_READ, [stream_arn]),
        # Authorised for all streams of the table; IAM supports no narrower resource.
        (("dynamodb:ListStreams",), [f"{table_arn}/stream/*"]),
        (("s3:ListBucket",), [bucket.bucket_arn]),
        (("s3:PutObject",), [bucket.arn_for_objects(f"{KEY_PREFIX}/*")]),
    )


EVENT_AGE_S = 60  # Scheduler's minimum


class Clock(Construct):
    """
    The schedules of a stage: `targets` are the invoked functions, `group` identifies its metrics.
    """

    def __init__(
        self, scope: Construct, name: str, functions: Mapping[str, TidingsFunction]
    ) -> None:
        super().__init__(scope, name)
        self.group = scheduler.CfnScheduleGroup(self, "Group").ref
        self.targets = [functions[schedule.function] for schedule in deployment.SCHEDULES]
        for schedule, target in zip(deployment.SCHEDULES, self.targets, strict=True):
            FunctionSchedule(
                scope, f"{target.node.id}Clock", schedule=schedule, target=target, group=self.group
            )


class FunctionSchedule(Construct):
    """The schedule of one function, in minutes; the next run does the work of a missed one."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        schedule: deployment.Schedule,
        target: TidingsFunction,
        group: str,
    ) -> None:
        super().__init__(scope, name)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        allow(role, ["lambda:InvokeFunction"], [target.live.function_arn])
        minutes = schedule.every_minutes
        scheduler.CfnSchedule(
            self,
            "Schedule",
            group_name=group,
            schedule_expression=f"rate({minutes} minute{'s' if minutes > 1 else ''})",
            flexible_time_window={"mode": "OFF"},
            target={
                "arn": target.live.function_arn,
                "roleArn": role.role_arn,
                "retryPolicy": {
                    "maximumEventAgeInSeconds": EVENT_AGE_S,
                    "maximumRetryAttempts": 0,
                },
            },
        )
