"""A producer that reads the stream of a table (docs/guides/CAPTURES.md).

The application that writes to the table does not change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import aws_cdk as cdk
import cdk_nag
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.names import variables
from infra.parts.alarms import Alarms
from infra.parts.buckets import private_bucket
from infra.parts.function import Layers, StreamSource, TidingsFunction
from infra.parts.policies import allow_key
from infra.parts.tables import Tables, find_key, find_table
from infra.settings import Producer, Stage
from tidings.aws.config import deployment
from tidings.aws.config.stages import stack_name
from tidings.core.ingest import table_capture
from tidings.core.model.feeds import check_known

TOPIC_EXPORT = "AlarmsTopic"  # an output of a stage's stack, for alarms in other stacks
_REACHED = frozenset(grant.table for grant in deployment.CAPTURE.grants)


@dataclass(frozen=True, slots=True)
class Reach:
    """The resources of a stage that a producer uses."""

    tables: Tables
    layers: Sequence[lambda_.ILayerVersion]
    environment: Mapping[str, str]
    alarms: Alarms


def export_topic(stack: cdk.Stack, stage: Stage, alarms: Alarms) -> None:
    """Export the alarm topic for alarms in other stacks; its ARN never changes."""
    topic = alarms.topic.topic_arn
    cdk.CfnOutput(stack, f"For{TOPIC_EXPORT}", value=topic, export_name=_topic(stage))


def alarms_of(scope: Construct, stage: Stage) -> Alarms:
    """Return alarms in another stack of *stage*, which are sent to the exported topic."""
    topic = sns.Topic.from_topic_arn(scope, "Topic", cdk.Fn.import_value(_topic(stage)))
    return Alarms(scope, "Alarms", stage=stage, topic=topic)


def _topic(stage: Stage) -> str:
    return f"{stack_name(stage.name)}-{TOPIC_EXPORT}"


def reach_of(scope: Construct, stage: Stage) -> Reach:
    """Return the resources of *stage* for a producer in another stack, of this app or another."""
    reached = [replace(table, stream=False) for table in deployment.TABLES]
    tables = {
        table.name: find_table(scope, stage, table) for table in reached if table.name in _REACHED
    }
    layers = Layers(scope, "Layers", stage)
    return Reach(
        Tables(tables, find_key(scope, stage), stage),
        [*layers.shared, *layers.tracing],
        _environment(stage, {name: table.table_name for name, table in tables.items()}),
        alarms_of(scope, stage),
    )


class TableProducer(Construct):
    """A function on the stream of one table, appending the table's writes to a feed as operations.

    A write that cannot be converted is stored in the outbox under `refused#<feed>`. Records that
    could not be appended for half a day are stored in a bucket. A refused write and a stored record
    each raise an alarm.
    """

    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, producer: Producer, reach: Reach
    ) -> None:
        """Create the function of *producer*.

        Raises:
            InvalidSetting, InvalidFeed, UnknownFeed: the capture of *producer* is invalid.
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
            given_up=private_bucket(Construct(self, "GivenUp"), stage),
            counted=True,
        )
        reach.alarms.add_source_alarms(self.source)
        _accept(self)

    def _grant(self, producer: Producer, reach: Reach) -> None:
        for grant in deployment.CAPTURE.grants:
            reach.tables.allow(self.target.role, grant)
        reach.tables.allow_key(self.target.role)
        if producer.key_arn:
            allow_key(self.target.role, producer.key_arn, ("kms:Decrypt",))


def table_of(stream_arn: str) -> str:
    """Return the ARN of the table of a stream, even if *stream_arn* is only known at deployment."""
    if cdk.Token.is_unresolved(stream_arn):
        return cdk.Fn.select(0, cdk.Fn.split("/stream/", stream_arn))
    return stream_arn.partition("/stream/")[0]


def _environment(stage: Stage, tables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the stage's functions, with "-" for tables not in *tables*."""
    return variables(
        stage, {table.name: tables.get(table.name, "-") for table in deployment.TABLES}
    )


def _accept(made: TableProducer) -> None:
    """Suppress findings for *made* only, because its stack may belong to the table's owner."""
    reasons = {
        "AwsSolutions-IAM5": "ListStreams is authorised against all streams of a table, and Lambda "
        "chooses the names of discarded records; the grants are for one table, and for one prefix "
        "of one bucket.",
        "AwsSolutions-L1": "The vendor layer holds wheels for this runtime.",
        "AwsSolutions-S1": "The bucket contains records that Lambda discarded, usually none.",
    }
    cdk_nag.NagSuppressions.add_resource_suppressions(
        made,
        [cdk_nag.NagPackSuppression(id=rule, reason=reason) for rule, reason in reasons.items()],
        apply_to_children=True,
    )
