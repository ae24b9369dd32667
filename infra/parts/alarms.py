"""The alarms of a stage, all to one topic. RUNBOOKS.md says what to do about each."""

from __future__ import annotations

from collections.abc import Iterable
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
        self.made: list[cloudwatch.Alarm] = []

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
            self._any(f"{target.node.id}{metric}", measures.of_function(metric, called))

    def watch_schedules(self, clock: Clock) -> None:
        """A schedule that does not run: what it counts would say nothing, so nothing alarms."""
        for target in clock.targets:
            ran = measures.of_function("Invocations", target.function.function_name)
            self._below_one(f"{target.node.id}Invocations", ran)
        self._any("ScheduleTargetErrorCount", measures.of_schedules("TargetErrorCount", clock))

    def watch_source(self, source: StreamSource) -> None:
        """Records that come late, were given up, or went to the bucket."""
        for metric in _MAPPING_METRICS:
            self._any(f"{source.node.id}{metric}", measures.of_mapping(metric, source))
        called = source.target.function.function_name
        age = measures.of_function("IteratorAge", called, statistic="Maximum")
        self._above(f"{source.node.id}IteratorAge", age, ITERATOR_AGE_MS_MAX)

    def watch_refusals(self, source: StreamSource) -> None:
        """Writes that no operation can be made of; of any producer of the stage."""
        refused = measures.of_feed("WritesRefused", self.stage)
        self._any(f"{source.node.id}WritesRefused", refused)

    def watch_followers(self) -> None:
        """A follower far behind its feed for a while, or overtaken by retention; lost pages."""
        lag = measures.of_feed("FollowerLag", self.stage, statistic="Maximum")
        self._above("FollowerLag", lag, self.stage.lag_pages_max, periods=LAG_PERIODS)
        for metric in ("FollowerFellOff", "PagesLost"):
            self._any(metric, measures.of_feed(metric, self.stage))

    def watch_consumers(self) -> None:
        """A named consumer for whom the log outlives its retention, or one that it overtook."""
        for metric in ("ConsumersLate", "ConsumersFellOff"):
            self._any(metric, measures.of_feed(metric, self.stage, statistic="Maximum"))

    def watch_archive(self) -> None:
        """An archive that gets no pages, for which the log has to wait, or that cannot be read."""
        lag = measures.of_feed("ArchiveLag", self.stage, statistic="Maximum")
        self._above("ArchiveLag", lag, ARCHIVE_LAG_S_MAX, periods=LAG_PERIODS)
        self._any("PartsBroken", measures.of_feed("PartsBroken", self.stage))

    def watch_relays(self) -> None:
        """Chained feeds that stand still, are not read, or do not keep up."""
        standing = measures.of_feed("RelaysStanding", self.stage, statistic="Maximum")
        self._any("RelaysStanding", standing)
        self._any("RelayFellOff", measures.of_feed("RelayFellOff", self.stage))
        age = measures.of_feed("RelayUpstreamAge", self.stage, statistic="Maximum")
        self._above("RelayUpstreamAge", age, UPSTREAM_AGE_S_MAX)
        lag = measures.of_feed("RelayLag", self.stage, statistic="Maximum")
        self._above("RelayLag", lag, self.stage.lag_pages_max, periods=LAG_PERIODS)

    def watch_tables(self, tables: Tables) -> None:
        """DynamoDB refusing reads or writes."""
        for name, table in tables.by_name.items():
            for metric in _TABLE_METRICS:
                refused = table.metric(metric, statistic="Sum", period=measures.PERIOD)
                self._any(f"{name.title()}{metric}", refused)

    def watch_apis(self, http: FeedHttpApi, sockets: FeedSocketApi) -> None:
        """Answers of 5xx, WebSocket messages whose function failed, or that are refused to us."""
        self._any("Http5xx", http.api.metric_server_error(period=measures.PERIOD))
        failed = sockets.deployed.metric(
            "IntegrationError", statistic="Sum", period=measures.PERIOD
        )
        self._any("SocketErrors", failed)
        self._any("SendsRefused", measures.of_feed("SendsRefused", self.stage))

    def watch_syncs(self, machine: str) -> None:
        """Syncs that failed; what a guard stopped did not."""
        self._watch_machine("Sync", machine)

    def watch_lake(self, machine: str) -> None:
        """A run that did not bring each feed's tables up to date, or did not end in time."""
        self._watch_machine("Lake", machine)

    def watch_pipeline(self, name: str, machine: str) -> None:
        """A pipeline that could not be started; that it runs is told by the lag of its stores."""
        self._watch_machine(f"Pipeline{name}", machine)

    def _watch_machine(self, name: str, machine: str) -> None:
        for metric in _MACHINE_METRICS:
            self._any(f"{name}{metric}", measures.of_machine(metric, machine))

    def _any(self, name: str, metric: cloudwatch.IMetric) -> None:
        self._above(name, metric, 0)

    def _above(
        self, name: str, metric: cloudwatch.IMetric, threshold: int, *, periods: int = 1
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

    def alarms(self) -> Iterable[cloudwatch.IAlarm]:
        return self.made
