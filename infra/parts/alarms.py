"""
The alarms of a stage, all to one topic: one for each thing that a person would do.

What can be folded is folded before an alarm looks at it: failures by filters of logs (`logs`),
throttles by AWS, and what the sweep can read by the core (`tidings.core.attention`). ADR 51 has
what notices what. RUNBOOKS.md says what to do about each.
"""

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

from infra import runbooks
from infra.parts import measures
from infra.parts.function import TidingsFunction
from infra.parts.tables import Tables
from infra.parts.triggers import Clock, StreamSource
from infra.settings import Stage

ITERATOR_AGE_MS_MAX = 60_000  # a stream that is a minute late is not read
DEAD_PERIODS = 2  # a schedule runs each minute; ten without a run are no hiccup of Scheduler's
LASTING_PERIODS = 3  # a burst may leave a follower behind for a few minutes

_CIRCLING_METRIC = "RecursiveInvocationsDropped"
_MAPPING_METRICS = ("DroppedEventCount", "OnFailureDestinationDeliveredEventCount")
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

    def watch_failures(self) -> None:
        """Calls, requests and executions that failed. It ends a canary (`delivery`), too."""
        self.failures = self._above("Failures", measures.of_failures(self.stage))

    def watch_feeds(self) -> None:
        """Whatever the core finds that a person has to know, now or if it lasts."""
        self._above("Attention", measures.of_feed("Attention", self.stage))
        self._above("Behind", measures.of_feed("Behind", self.stage), periods=LASTING_PERIODS)

    def watch_schedules(self, clock: Clock) -> None:
        """A schedule that does not run: what it looks for would not be found, and nothing alarm."""
        for target in clock.targets:
            ran = measures.of_function("Invocations", target.function.function_name)
            self._below_one(f"{target.node.id}Invocations", ran)

    def watch_source(self, source: StreamSource) -> None:
        """Of a producer: its records are more than wake-ups, and nothing else tells of them."""
        for metric in _MAPPING_METRICS:
            self._above(f"{source.node.id}{metric}", measures.of_mapping(metric, source))
        called = source.target.function.function_name
        age = measures.of_function("IteratorAge", called, statistic="Maximum")
        self._above(f"{source.node.id}IteratorAge", age, ITERATOR_AGE_MS_MAX)

    def watch_concurrency(self) -> None:
        """It is the account's: whoever uses it up, all of its functions are refused."""
        self._above("Throttles", measures.of_account("Throttles"))

    def watch_chain(self, target: TidingsFunction) -> None:
        """Calls of itself that Lambda takes for a loop; the sweep goes on a minute later."""
        dropped = measures.of_function(_CIRCLING_METRIC, target.function.function_name)
        self._above(f"{target.node.id}{_CIRCLING_METRIC}", dropped)

    def watch_tables(self, tables: Tables) -> None:
        """DynamoDB refusing reads or writes that are then repeated: a feed near its limit."""
        for name, table in tables.by_name.items():
            for metric in _TABLE_METRICS:
                refused = table.metric(metric, statistic="Sum", period=measures.PERIOD)
                self._above(f"{name.title()}{metric}", refused)

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
        described = runbooks.description(name)
        alarm = cloudwatch.Alarm(self, name, alarm_description=described, **settings)
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.made.append(alarm)
        return alarm
