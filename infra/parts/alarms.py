"""The alarms of a stage: one alarm for each action that an operator may have to take.

All alarms are sent to one topic.

Related conditions are combined into one metric, which an alarm evaluates. Log filters combine the
failures (`infra.parts.logs`), AWS combines the throttles, and `tidings.core.attention` combines the
measurements of the sweep. ADR 51 maps conditions to alarms. RUNBOOKS.md describes the action for
each alarm. The dashboard shows the alarms, an overview, every metric of the feed, and AWS's
metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra import names, prices
from infra.parts import measures
from infra.parts.apis import FeedHttpApi, FeedSocketApi
from infra.parts.function import Clock, StreamSource, TidingsFunction
from infra.parts.pipeline_job import WAITING_LINES
from infra.parts.tables import Tables
from infra.settings import Stage
from tidings.core.metrics import METRICS, Metric

ITERATOR_AGE_MS_MAX = 60_000  # a stream that is a minute late is not being read
# The number of periods of five minutes without a run, after which an alarm is raised. A schedule
# runs each minute, so ten minutes without a run are a persistent failure.
DEAD_PERIODS = 2
# The number of periods for which an alert that is not urgent must last before its alarm is raised.
# A burst may delay a follower for a few minutes.
LASTING_PERIODS = 3

_URL_METRIC = "Url5xxCount"
_CIRCLING_METRIC = "RecursiveInvocationsDropped"
_MAPPING_METRICS = ("DroppedEventCount", "OnFailureDestinationDeliveredEventCount")
_TABLE_METRICS = ("ReadThrottleEvents", "WriteThrottleEvents")


class Alarms(Construct):
    """The alarms of a stage, which are sent to `topic`.

    A metric without data does not raise its alarm, because the feed may be quiet. The exception is
    the alarm of a schedule, because a schedule that runs always produces data.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        key: kms.IKey | None = None,
        topic: sns.ITopic | None = None,
    ) -> None:
        """Send the alarms to *topic*, or to a new topic encrypted with *key*."""
        super().__init__(scope, name)
        self.stage = stage
        self.topic = topic or self._topic(key)
        for address in stage.alarm_mail if topic is None else ():
            self.topic.add_subscription(subscriptions.EmailSubscription(address))
        self.made: list[cloudwatch.IAlarm] = []

    def _topic(self, key: kms.IKey | None) -> sns.Topic:
        topic = sns.Topic(self, "Topic", enforce_ssl=True, master_key=key)
        # `enforce_ssl` gives the topic a policy. CloudWatch can then publish only if the policy
        # allows it.
        account = {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
        topic.grant_publish(iam.ServicePrincipal("cloudwatch.amazonaws.com", conditions=account))
        return topic

    def add_failure_alarms(self) -> None:
        """Add the alarm for failed calls, requests, executions; this alarm also ends a canary."""
        self.failures = self._above("Failures", measures.of_failures(self.stage))

    def add_feed_alarms(self) -> None:
        """Add an alarm for urgent alerts, and one for alerts that need action only if they last."""
        self._above("Attention", measures.of_feed("Attention", self.stage))
        self._above("Behind", measures.of_feed("Behind", self.stage), periods=LASTING_PERIODS)

    def add_schedule_alarms(self, clock: Clock) -> None:
        """Add an alarm for each schedule. The alarm is raised if the schedule does not run.

        Nothing else would show that the checks of the scheduled function have stopped.
        """
        for target in clock.targets:
            ran = measures.of_function("Invocations", target.function.function_name)
            self._below_one(f"{target.node.id}Invocations", ran)

    def add_source_alarms(self, source: StreamSource) -> None:
        """Add the alarms of a producer.

        The records of a producer's stream are the only copy of the writes. Other streams have no
        such alarms, because their records are only wake-ups.
        """
        for metric in _MAPPING_METRICS:
            self._above(f"{source.node.id}{metric}", measures.of_mapping(metric, source))
        called = source.target.function.function_name
        age = measures.of_function("IteratorAge", called, statistic="Maximum")
        self._above(f"{source.node.id}IteratorAge", age, ITERATOR_AGE_MS_MAX)

    def add_stream_alarms(self, target: TidingsFunction) -> None:
        """Add the alarm for failed event streams.

        The alarm for failures does not include event streams, because responses of a function URL
        appear in no access log.
        """
        failed = measures.of_function(_URL_METRIC, target.function.function_name)
        self._above(f"{target.node.id}{_URL_METRIC}", failed)

    def add_concurrency_alarms(self) -> None:
        """Add one alarm for throttled calls of all functions, which share the account's limit."""
        self._above("Throttles", measures.of_account("Throttles"))

    def add_chain_alarms(self, target: TidingsFunction) -> None:
        """Add the alarm for wake-ups that Lambda dropped as it mistook them for an endless loop.

        After a dropped wake-up, the sweep wakes *target* within a minute.
        """
        dropped = measures.of_function(_CIRCLING_METRIC, target.function.function_name)
        self._above(f"{target.node.id}{_CIRCLING_METRIC}", dropped)

    def add_table_alarms(self, tables: Tables) -> None:
        """Add the alarms for throttled requests to DynamoDB, a sign that a feed is near its limit.

        The requests are retried.
        """
        for name, table in tables.by_name.items():
            for metric in _TABLE_METRICS:
                refused = table.metric(metric, statistic="Sum", period=measures.PERIOD)
                self._above(f"{name.title()}{metric}", refused)

    def add_pipeline_alarms(self) -> None:
        """Add the alarms for stores and readers that wait, and for a database's log that grows.

        A waiting pipeline does not fail, and the log may fill the disk of the database.
        """
        for name in WAITING_LINES:
            self._above(name, measures.of_lines(self.stage, name))

    def _above(
        self, name: str, metric: cloudwatch.IMetric, threshold: int = 0, *, periods: int = 1
    ) -> cloudwatch.IAlarm:
        return self._alarm(
            name,
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _below_one(self, name: str, metric: cloudwatch.IMetric) -> None:
        self._alarm(
            name,
            metric=metric,
            threshold=1,
            evaluation_periods=DEAD_PERIODS,
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
        )

    def _alarm(self, name: str, **settings: Any) -> cloudwatch.IAlarm:
        described = names.description(name)
        alarm = cloudwatch.Alarm(self, name, alarm_description=described, **settings)
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.made.append(alarm)
        return alarm


FULL_WIDTH, WIDTH, QUARTER = 24, 8, 6  # CloudWatch's grid has 24 columns
ERRORS = "Errors"
_OVERVIEW = {
    "Lag, pages": ("FollowerLag", "ConsumerLag", "RelayLag"),
    "Throughput": ("OperationsIngested", "FollowerPages", "FramesSent"),
    ERRORS: ("RequestsRejected", "FollowerFellOff", "ConnectionsClosed"),
}
_PER_SYNC = ("ExecutionsStarted", "ExecutionsSucceeded", "ExecutionsFailed")
_PER_FUNCTION = (("Invocations", "Sum"), ("Errors", "Sum"), ("Duration", "p99"))


class FeedDashboard(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        alarms: Alarms,
        functions: Sequence[TidingsFunction],
        tables: Tables,
        http: FeedHttpApi,
        sockets: FeedSocketApi,
        syncs: str,
    ) -> None:
        super().__init__(scope, name)
        # A dashboard belongs to an account and not to a Region, so its name contains the Region.
        called = f"tidings-{stage.name}-{cdk.Aws.REGION}"
        board = cloudwatch.Dashboard(self, "Board", dashboard_name=called)
        board.add_widgets(
            cloudwatch.AlarmStatusWidget(alarms=alarms.made, width=FULL_WIDTH, title="Alarms")
        )
        messages = sockets.deployed.metric("MessageCount", statistic="Sum", period=measures.PERIOD)
        requests = http.api.metric_count(period=measures.PERIOD)
        apis = ((requests, prices.HTTP_REQUEST), (messages, prices.MESSAGE))
        board.add_widgets(
            *_overview(stage, http), _cost(measures.per_million(stage, functions, tables, apis))
        )
        board.add_widgets(*[_metric(metric, stage) for metric in METRICS])
        board.add_widgets(*[_functions(*each, functions) for each in _PER_FUNCTION])
        board.add_widgets(_syncs(syncs))


def _overview(stage: Stage, http: FeedHttpApi) -> Iterator[cloudwatch.GraphWidget]:
    for title, shown in _OVERVIEW.items():
        left: list[cloudwatch.IMetric] = [measures.of_feed(name, stage) for name in shown]
        if title == ERRORS:
            left.append(http.api.metric_server_error(period=measures.PERIOD))
        yield cloudwatch.GraphWidget(title=title, left=left, width=QUARTER)


def _cost(dollars: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    title = f"Cost of a million operations, at list prices of {prices.DATE}"
    return cloudwatch.GraphWidget(title=title, left=[dollars], width=QUARTER)


def _metric(metric: Metric, stage: Stage) -> cloudwatch.GraphWidget:
    measured = measures.of_feed(metric.name, stage)
    title = f"{metric.name}: {metric.meaning}"
    return cloudwatch.GraphWidget(title=title, left=[measured], width=WIDTH)


def _functions(
    name: str, statistic: str, functions: Sequence[TidingsFunction]
) -> cloudwatch.GraphWidget:
    series = [
        measures.of_function(name, each.function.function_name, statistic=statistic)
        for each in functions
    ]
    return cloudwatch.GraphWidget(title=f"{name} ({statistic})", left=list(series), width=WIDTH)


def _syncs(machine: str) -> cloudwatch.GraphWidget:
    series = [measures.of_machine(name, machine) for name in _PER_SYNC]
    return cloudwatch.GraphWidget(title="Syncs", left=list(series), width=WIDTH)
