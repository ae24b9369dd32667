"""Any table's stream as a producer: its owner's code is not touched (docs/guides/TABLES.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import aws_cdk as cdk
import cdk_nag
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct
from tidings.aws.config import deployment
from tidings.aws.config.stages import stack_name
from tidings.core.ingest import table_capture
from tidings.core.model.feeds import check_known

from infra.environment import variables
from infra.parts.alarms import Alarms
from infra.parts.function import TidingsFunction
from infra.parts.layers import Layers
from infra.parts.policies import allow, allow_key
from infra.parts.stream_source import GivenUp, StreamSource
from infra.settings import Producer, Stage

# What the stack of a stage exports for producers in other stacks; none of it changes by a deploy.
EXPORTS = {"log": "LogTable", "control": "ControlTable", "outbox": "OutboxTable"}
TOPIC_EXPORT, KEY_EXPORT = "AlarmsTopic", "KeyArn"


@dataclass(frozen=True, slots=True)
class Reach:
    """What a producer uses of its stage: *tables* by their names in the blueprint."""

    tables: Mapping[str, dynamodb.ITable]
    key: kms.IKey | None
    layers: Sequence[lambda_.ILayerVersion]
    environment: Mapping[str, str]
    alarms: Alarms


def export(stack: cdk.Stack, reach: Reach, stage: Stage) -> None:
    """Let producers in other stacks reach this one."""
    exported = {out: reach.tables[table].table_name for table, out in EXPORTS.items()}
    exported[TOPIC_EXPORT] = reach.alarms.topic.topic_arn
    if reach.key is not None:
        exported[KEY_EXPORT] = reach.key.key_arn
    for name, value in exported.items():
        cdk.CfnOutput(stack, f"For{name}", value=value, export_name=_exported(stage, name))


def _exported(stage: Stage, name: str) -> str:
    return f"{stack_name(stage.name)}-{name}"


def reach_of(scope: Construct, stage: Stage) -> Reach:
    """What a producer uses of *stage*, which is deployed by a stack of another app."""
    names = {table: cdk.Fn.import_value(_exported(stage, out)) for table, out in EXPORTS.items()}
    topic = cdk.Fn.import_value(_exported(stage, TOPIC_EXPORT))
    key = cdk.Fn.import_value(_exported(stage, KEY_EXPORT)) if stage.customer_key else None
    return Reach(
        {
            table: dynamodb.Table.from_table_name(scope, table.title(), name)
            for table, name in names.items()
        },
        kms.Key.from_key_arn(scope, "Key", key) if key else None,
        Layers(scope, "Layers").shared,
        _environment(stage, names),
        Alarms(scope, "Alarms", stage=stage, topic=sns.Topic.from_topic_arn(scope, "Topic", topic)),
    )


class TableProducer(Construct):
    """
    One function at the stream of one table, which appends what its writes mean to a feed.

    What no operation can be made of lies in the outbox under `refused#<feed>`, what could not be
    appended for half a day in a bucket; both raise an alarm.
    """

    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, producer: Producer, reach: Reach
    ) -> None:
        """
        Raises:
            InvalidSetting, InvalidFeed, UnknownFeed: the capture of *producer* has a mistake.
        """
        super().__init__(scope, name)
        capture = json.dumps(producer.capture)
        served = reach.environment["TIDINGS_FEEDS"].split(",")
        check_known(table_capture.parse(capture).feed, frozenset(served))
        self.target = TidingsFunction(
            self,
            f"{name}Capture",
            stage=stage,
            function=replace(
                deployment.CAPTURE,
                name=f"{deployment.CAPTURE.name}-{producer.name}",
                environment={"TIDINGS_CAPTURE": capture},
            ),
            layers=reach.layers,
            environment=reach.environment,
        )
        self._grant(producer, reach)
        self.source = StreamSource(
            self,
            f"{name}Stream",
            source=replace(deployment.CAPTURE_SOURCE, table=producer.name),
            stream_arn=producer.stream_arn,
            table_arn=table_of(producer.stream_arn),
            target=self.target,
            given_up=GivenUp(self, "GivenUp", stage=stage),
            counted=True,
        )
        reach.alarms.watch_source(self.source)
        _accept(self)

    def _grant(self, producer: Producer, reach: Reach) -> None:
        for grant in deployment.CAPTURE.grants:
            allow(self.target.role, grant.actions, [reach.tables[grant.table].table_arn])
        if reach.key is not None:
            allow_key(self.target.role, reach.key.key_arn)
        if producer.key_arn:
            allow_key(self.target.role, producer.key_arn, ("kms:Decrypt",))


def table_of(stream_arn: str) -> str:
    """The ARN of the table whose stream this is, also where it is known at deployment only."""
    if cdk.Token.is_unresolved(stream_arn):
        return cdk.Fn.select(0, cdk.Fn.split("/stream/", stream_arn))
    return stream_arn.partition("/stream/")[0]


def _environment(stage: Stage, tables: Mapping[str, str]) -> dict[str, str]:
    """As the stage's own functions are told, but for what this one does not reach."""
    return variables(
        stage, {table.name: tables.get(table.name, "-") for table in deployment.TABLES}
    )


def _accept(made: TableProducer) -> None:
    """Here and not for the stack, which may be the owner's."""
    reasons = {
        "AwsSolutions-IAM5": "ListStreams is authorised against all streams of the one table, and "
        "Lambda names what it gives up, below one prefix of one bucket.",
        "AwsSolutions-L1": "The vendor layer holds wheels for this runtime.",
        "AwsSolutions-S1": "The bucket holds what Lambda gave up, which is nearly always nothing.",
    }
    cdk_nag.NagSuppressions.add_resource_suppressions(
        made,
        [cdk_nag.NagPackSuppression(id=rule, reason=reason) for rule, reason in reasons.items()],
        apply_to_children=True,
    )
