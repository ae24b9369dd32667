"""The alarms of a stage, all to one topic. RUNBOOKS.md says what to do about each."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra import circles, runbooks
from infra.parts import measures
from infra.parts.function import TidingsFunction
from infra.parts.http_api import FeedHttpApi
from infra.parts.schedules import Clock
from infra.parts.socket_api import FeedSocketApi
from infra.parts.stream_source import StreamSource
from infra.parts.tables import Tables
from infra.settings import Stage

ITERATOR_AGE_MS_MAX = 60_000  # the sweep wakes followers each minute, so a slower stream is useless
UPSTREAM_AGE_S_MAX = 120  # retries come each minute, so the second one has failed too
ARCHIVE_LAG_S_MAX = 900  # it runs each minute; a busy feed's runs take some
DEAD_PERIODS = 2  # a schedule runs each minute; ten without a run are no hiccup of Scheduler's
LAG_PERIODS = 3  # a burst may leave a follower behind for a few minutes

# The sweep makes up for a throttled follower, but it says that the account lacks concurrency.
_FUNCTION_METRICS = ("Errors", "Throttles")
_WOKEN_METRIC = "AsyncEventsDropped"  # of calls that nobody waits for
_CIRCLING_METRIC = "RecursiveInvocationsDropped"  # Lambda mistook a backlog for a loop
_MAPPING_METRICS = ("DroppedEventCount", "OnFailureDestinationDeliveredEventCount")
_MACHINE_METRICS = ("ExecutionsFailed", "ExecutionsTimedOut")
_TABLE_METRICS = ("ReadThrottleEvents", "WriteThrottleEvents")


class Alarms(Construct):
    """
    `topic` is what to subscribe to. An alarm without data is a quiet feed, not a broken one; but a
    schedule is never quiet.
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
        """To *topic*, or one of its own under *key*."""
        super().__init__(scope, name)
        self.stage = stage
        self.topic = topic or self._topic(key)
        for address in stage.alarm_mail if topic is None else ():
            self.topic.add_subscription(subscriptions.EmailSubscription(address))
        self.made: list[cloudwatch.IAlarm] = []

    def _topic(self, key: kms.IKey | None) -> sns.Topic:
        topic = sns.Topic(self, "Topic", enforce_ssl=True, master_key=key)
        # A topic with a policy of its own is closed to CloudWatch unless the policy says otherwise.
        account = {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
        topic.grant_publish(iam.ServicePrincipal("cloudwatch.amazonaws.com", conditions=account))
        return topic

    def watch_function(self, target: TidingsFunction) -> None:
        """Any error and any refused invocation, and calls that AWS dropped."""
        called, name = target.function.function_name, target.blueprint.name
        watched = [*_FUNCTION_METRICS]
        watched += [_WOKEN_METRIC] if name in circles.WOKEN else []
        watched += [_CIRCLING_METRIC] if name in circles.CIRCLING else []
        for metric in watched:
            self._above(f"{target.node.id}{metric}", measures.of_function(metric, called))

    def watch_schedules(self, clock: Clock) -> None:
        """A schedule that does not run: what it counts would say nothing, so nothing alarms."""
        for target in clock.targets:
            ran = measures.of_function("Invocations", target.function.function_name)
            self._below_one(f"{target.node.id}Invocations", ran)
        self._above("ScheduleTargetErrorCount", measures.of_schedules("TargetErrorCount", clock))

    def watch_source(self, source: StreamSource) -> None:
        """Records that come late, were given up, or went to the bucket."""
        for metric in _MAPPING_METRICS:
            self._above(f"{source.node.id}{metric}", measures.of_mapping(metric, source))
        called = source.target.function.function_name
        age = measures.of_function("IteratorAge", called, statistic="Maximum")
        self._above(f"{source.node.id}IteratorAge", age, ITERATOR_AGE_MS_MAX)

    def watch_refusals(self, source: StreamSource) -> None:
        """Writes that no operation can be made of; of any producer of the stage."""
        refused = measures.of_feed("WritesRefused", self.stage)
        self._above(f"{source.node.id}WritesRefused", refused)

    def watch_feeds(self) -> None:
        """
        A follower or the archive far behind for a while, or overtaken by retention; lost pages.

        A named consumer for whom the log outlives its retention, or one that it overtook. Chained
        feeds that stand still, are not read, or do not keep up.
        """
        lag_max = self.stage.lag_pages_max
        self._of_feed("FollowerLag", lag_max, periods=LAG_PERIODS)
        self._of_feed("FollowerFellOff")
        self._of_feed("PagesLost")
        self._of_feed("ConsumersLate")
        self._of_feed("ConsumersFellOff")
        self._of_feed("ArchiveLag", ARCHIVE_LAG_S_MAX, periods=LAG_PERIODS)
        self._of_feed("PartsBroken")
        if self.stage.sources:
            self._of_feed("RelaysStanding")
            self._of_feed("RelayFellOff")
            self._of_feed("RelayUpstreamAge", UPSTREAM_AGE_S_MAX)
            self._of_feed("RelayLag", lag_max, periods=LAG_PERIODS)

    def watch_tables(self, tables: Tables) -> None:
        """DynamoDB refusing reads or writes."""
        for name, table in tables.by_name.items():
            for metric in _TABLE_METRICS:
                refused = table.metric(metric, statistic="Sum", period=measures.PERIOD)
                self._above(f"{name.title()}{metric}", refused)

    def watch_apis(self, http: FeedHttpApi, sockets: FeedSocketApi) -> None:
        """Answers of 5xx, WebSocket messages whose function failed, or that are refused to us."""
        self._above("Http5xx", http.api.metric_server_error(period=measures.PERIOD))
        failed = sockets.deployed.metric(
            "IntegrationError", statistic="Sum", period=measures.PERIOD
        )
        self._above("SocketErrors", failed)
        self._of_feed("SendsRefused")

    def watch_machine(self, name: str, machine: str) -> None:
        """
        Executions that failed or did not end in time.

        A sync that a guard stopped did not fail. That a pipeline runs is told by the lag of its
        stores: only one that could not be started has failed.
        """
        for metric in _MACHINE_METRICS:
            self._above(f"{name}{metric}", measures.of_machine(metric, machine))

    def _of_feed(self, metric: str, threshold: int = 0, *, periods: int = 1) -> None:
        measured = measures.of_feed(metric, self.stage)
        self._above(metric, measured, threshold, periods=periods)

    def _above(
        self, name: str, metric: cloudwatch.IMetric, threshold: int = 0, *, periods: int = 1
    ) -> None:
        self._alarm(
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

    def _alarm(self, name: str, **settings: Any) -> None:
        described = runbooks.description(name)
        alarm = cloudwatch.Alarm(self, name, alarm_description=described, **settings)
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.made.append(alarm)
