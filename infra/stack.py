"""The composition of a stage, and the permissions of its parts.

`compose` creates the stacks: resources shared by all stages, data (`infra.data_stack`), functions
and addresses, and producers and pipelines if there are any. Producers and pipelines have separate
stacks, because their number is not limited, but the number of resources of a stack is limited to
500. A producer has eleven resources and a pipeline fourteen. No other part of the stage refers to
producers or pipelines. Run as a program, this module is the CDK app.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import aws_cdk as cdk
import cdk_nag
from aws_cdk import aws_budgets as budgets
from constructs import Construct

from infra import ROOT, settings, suppressions
from infra.data_stack import DataStack, StageData
from infra.names import addresses, title, variables
from infra.parts.alarms import Alarms, FeedDashboard
from infra.parts.apis import FeedHttpApi, FeedSocketApi, Urls, one_address
from infra.parts.function import (
    WOKEN,
    Canaries,
    Clock,
    Layers,
    StreamSource,
    TidingsFunction,
    check,
)
from infra.parts.lake import Lake
from infra.parts.logs import GatewayLogging
from infra.parts.machines import SyncJob, SyncMachine, SyncStarts
from infra.parts.pipeline_job import PipelineJob
from infra.parts.table_producer import TableProducer, alarms_of, export_topic, reach_of
from infra.parts.tables import Coordination
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.aws.config.settings import Settings
from tidings.aws.config.stages import (
    ACCOUNT_STACK,
    ARCHIVE_OUTPUT,
    COMPONENT_TAG,
    EXPIRES_TAG,
    SETTING_OUTPUTS,
    SOURCES_OUTPUT,
    STAGE_TAG,
    SYNC_BUCKET_OUTPUT,
    SYNC_MACHINE_OUTPUT,
    stack_name,
)


def compose(app: cdk.App, stages: Sequence[Stage]) -> None:
    """Create the stacks of *stages*, with their dependencies on each other.

    The CDK's feature flags in cdk.json also apply if the CDK's command line is not used.
    """
    for flag, value in json.loads((ROOT / "cdk.json").read_text())["context"].items():
        app.node.set_context(flag, value)
    account = AccountStack(app)
    for stage in stages:
        data, work = DataStack(app, stage), TidingsStack(app, stage)
        work.add_stack_dependency(account)  # WebSocket APIs need the account's logging role
        work.add_stack_dependency(data)
        # These stacks are deployed after `work`, which contained their resources in earlier
        # releases. `work` must first delete these resources, because the new ones have the same
        # names.
        optional: list[cdk.Stack] = [ProducersStack(app, stage)] if stage.producers else []
        if stage.pipelines:
            optional.append(PipelinesStack(app, stage))
        for each in optional:
            each.add_stack_dependency(work)
        for each in (data, work, *optional):
            guard(each, stage)


class TidingsStack(cdk.Stack):
    """All functions of one stage, and the APIs and URLs by which clients reach them.

    The stack can be synthesised without an account.
    """

    def __init__(self, scope: Construct, stage: Stage) -> None:
        super().__init__(
            scope,
            stack_name(stage.name),
            description=f"Tidings, {stage.name}",
            termination_protection=stage.keep_data,  # clients have stored the stage's addresses
        )
        check(stage)
        self.stage = stage
        self.data = StageData(self, "Data", stage=stage)
        self.key, self.tables = self.data.key, self.data.tables
        self.syncs, self.archive = self.data.syncs, self.data.archive
        self.sockets = FeedSocketApi(self, "Sockets", stage=stage)
        elected = stage.seats or stage.coordinator
        self.coordination = Coordination(self, "Seats", stage=stage) if elected else None
        self.values = self._environment()
        self.layers = Layers(self, "Layers", stage, tokens=self.settings.issuer is not None)
        self.functions = {each.name: self._function(each) for each in deployment.FUNCTIONS}
        self.http = FeedHttpApi(
            self,
            "Http",
            stage=stage,
            functions=self.functions,
            cors_origins=self.settings.cors_origins,
        )
        self.sockets.connect(self.functions)
        stream = self.functions["stream"].url or ""
        one_address(self, stage, Urls(self.http.url, stream, self.sockets.url))
        self.sources = self._sources()
        self.clock = Clock(self, "Clock", self.functions)
        self.sync = self._sync()
        self.lake = self._lake()
        self._add_alarms()
        self._outputs()
        suppressions.apply(self)

    def _environment(self) -> dict[str, str]:
        """Return the environment of every function: defaults, settings of the stage, addresses.

        Raises:
            WrongSetting: a value breaks its rule. Each function would fail when it starts.
        """
        names = {name: table.table_name for name, table in self.tables.by_name.items()}
        sources = self.stage.sources
        coordinator = self.coordination.url if self.coordination and sources else ""
        values = variables(self.stage, names) | {
            "TIDINGS_URL_PREFIX": self.stage.domain.prefix if self.stage.domain else "",
            "TIDINGS_OIDC": self.stage.environment.get("TIDINGS_OIDC", ""),
            "TIDINGS_SOCKETS_URL": self.sockets.callback_url,
            "TIDINGS_SOURCES": json.dumps(sources, separators=(",", ":")) if sources else "",
        }
        # The names of buckets and tables are not known before the deployment.
        known = values | {"TIDINGS_COORDINATOR": coordinator and "dynamodb://table"}
        self.settings = Settings.read(known)
        archive = self.archive.url if self.archive else ""
        return values | {"TIDINGS_ARCHIVE": archive, "TIDINGS_COORDINATOR": coordinator}

    def _function(self, function: deployment.Function) -> TidingsFunction:
        made = TidingsFunction(
            self,
            title(function.name),
            stage=self.stage,
            function=function,
            layers=[*self.layers.shared, *([] if function.streams else self.layers.tracing)],
            environment=self.values,
        )
        for grant in function.grants:
            self.tables.allow(made.role, grant)
        self.tables.allow_key(made.role)
        made.allow_sockets(self.sockets.connection_arns if function.sockets else [])
        made.allow_wakes(self.stage)
        for below in function.reads:
            self.syncs.allow_reading(made.role, below)
        if self.archive and function.archive:
            self.archive.allow(made.role, function.archive)
        if self.coordination and function.coordinates:
            self.coordination.allow(made.role)
        if function.name in WOKEN:
            made.forget_missed_wakes()
        return made

    def _sources(self) -> list[StreamSource]:
        return [
            StreamSource(
                self,
                f"{title(source.table)}To{title(source.function)}",
                source=source,
                stream_arn=self.tables.by_name[source.table].table_stream_arn or "",
                table_arn=self.tables.by_name[source.table].table_arn,
                target=self.functions[source.function],
                given_up=self.data.given_up,
            )
            for source in deployment.STREAM_SOURCES
        ]

    def _lake(self) -> Lake | None:
        if self.archive is None or self.stage.lake is None:
            return None
        return Lake(
            self,
            "Lake",
            stage=self.stage,
            key=self.key,
            tables=self.tables,
            archive=self.archive,
            bucket=self.data.lake(),
            job=self.job,
            values=self.values,
        )

    def _sync(self) -> SyncMachine:
        self.job = job = SyncJob(
            self, "SyncJob", stage=self.stage, tables=self.tables, syncs=self.syncs
        )
        machine = SyncMachine(
            self,
            "Sync",
            stage=self.stage,
            key=self.key,
            tables=self.tables,
            syncs=self.syncs,
            job=job,
            steer=self.functions["steer"],
            correct=self.functions["correct"],
        )
        SyncStarts(self, "SyncStarts", stage=self.stage, syncs=self.syncs, machine=machine)
        return machine

    def _add_alarms(self) -> None:
        self.alarms = Alarms(self, "Alarms", stage=self.stage, key=self.key)
        self.alarms.add_failure_alarms()
        self.alarms.add_stream_alarms(self.functions["stream"])
        self.alarms.add_schedule_alarms(self.clock)
        self.alarms.add_feed_alarms()
        if self.stage.all_alarms:
            self.alarms.add_concurrency_alarms()
            self.alarms.add_table_alarms(self.tables)
            self.alarms.add_chain_alarms(self.functions["replay"])
        if self.stage.canary and self.stage.tables_before is None:
            Canaries(self, "Canaries", functions=self.functions, alarm=self.alarms.failures)
        if not self.stage.dashboard:
            return
        FeedDashboard(
            self,
            "Dashboard",
            stage=self.stage,
            alarms=self.alarms,
            functions=list(self.functions.values()),
            tables=self.tables,
            http=self.http,
            sockets=self.sockets,
            syncs=self.sync.arn,
        )

    def _outputs(self) -> None:
        cdk.CfnOutput(self, "FeedUrl", value=self.http.url)
        cdk.CfnOutput(self, "SocketsUrl", value=self.sockets.url)
        for name, variable in SETTING_OUTPUTS.items():
            cdk.CfnOutput(self, name, value=self.values[variable])
        cdk.CfnOutput(self, "OutboxTable", value=self.values["TIDINGS_OUTBOX_TABLE"])
        if self.archive:
            cdk.CfnOutput(self, ARCHIVE_OUTPUT, value=self.archive.url)
        if self.stage.sources:
            cdk.CfnOutput(self, SOURCES_OUTPUT, value=addresses(self.stage))
        if self.lake:
            cdk.CfnOutput(self, "LakeMachine", value=self.lake.arn)
            cdk.CfnOutput(self, "LakeDatabase", value=self.lake.database)
        cdk.CfnOutput(self, SYNC_BUCKET_OUTPUT, value=self.syncs.bucket.bucket_name)
        cdk.CfnOutput(self, SYNC_MACHINE_OUTPUT, value=self.sync.arn)
        cdk.CfnOutput(self, "SyncsTopic", value=self.sync.topic.topic_arn)
        cdk.CfnOutput(self, "AlarmsTopic", value=self.alarms.topic.topic_arn)
        export_topic(self, self.stage, self.alarms)
        for function in self.functions.values():
            if function.url is not None and function.blueprint.endless:
                cdk.CfnOutput(self, f"{function.node.id}Url", value=function.url)


class AccountStack(cdk.Stack):
    def __init__(self, scope: Construct) -> None:
        super().__init__(
            scope, ACCOUNT_STACK, description="Tidings: the resources shared by all stages"
        )
        GatewayLogging(self, "GatewayLogging")
        suppressions.apply(self)


class ProducersStack(cdk.Stack):
    """The producers of *stage*. A stack of the tables' owner could contain the same constructs."""

    def __init__(self, scope: Construct, stage: Stage) -> None:
        name = f"{stack_name(stage.name)}-producers"
        super().__init__(scope, name, description=f"Tidings, {stage.name}: tables that produce")
        reach = reach_of(self, stage)
        for producer in stage.producers:
            called = f"Producer{title(producer.name)}"
            TableProducer(self, called, stage=stage, producer=producer, reach=reach)
        suppressions.apply(self)


class PipelinesStack(cdk.Stack):
    """The pipelines that *stage* keeps running."""

    def __init__(self, scope: Construct, stage: Stage) -> None:
        name = f"{stack_name(stage.name)}-pipelines"
        super().__init__(scope, name, description=f"Tidings, {stage.name}: pipelines")
        for run in stage.pipelines:
            PipelineJob(self, f"Pipeline{title(run.name)}", stage=stage, run=run)
        alarms_of(self, stage).add_pipeline_alarms()
        suppressions.apply(self)


# The limits, in percent of the budget, of the actual spending and of AWS's forecast for the month.
NOTIFIED = (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))


def guard(stack: cdk.Stack, stage: Stage) -> None:
    """Tag all resources of *stack* with the stage and the top-level construct; add the budget."""
    tags = {STAGE_TAG: stage.name} | ({EXPIRES_TAG: stage.expires} if stage.expires else {})
    for name, value in tags.items():
        cdk.Tags.of(stack).add(name, value)
        stack.add_stack_tag(name, value)  # tags the stack itself
    for part in stack.node.children:
        cdk.Tags.of(part).add(COMPONENT_TAG, part.node.id)
    if stage.budget_dollars is not None and stack.stack_name == stack_name(stage.name):
        Budget(stack, "Budget", stage=stage, dollars=stage.budget_dollars)


class Budget(Construct):
    """A monthly budget of all resources with the tag of *stage*, a cost allocation tag.

    If the stage has no `alarm_mail`, the budget sends no notifications.
    """

    def __init__(self, scope: Construct, name: str, *, stage: Stage, dollars: int) -> None:
        super().__init__(scope, name)
        mailed = [
            budgets.CfnBudget.SubscriberProperty(address=each, subscription_type="EMAIL")
            for each in stage.alarm_mail
        ]
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                # Budgets belong to an account, so the name contains the Region.
                budget_name=f"{stack_name(stage.name)}-{cdk.Aws.REGION}",
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=dollars, unit="USD"),
                cost_filters={
                    "TagKeyValue": [f"user:{STAGE_TAG}${stage.name}"],
                    "Region": [cdk.Aws.REGION],
                },
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        comparison_operator="GREATER_THAN",
                        notification_type=kind,
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=mailed,
                )
                for kind, percent in (NOTIFIED if mailed else ())
            ],
        )


def main() -> None:
    """Synthesise all stages, or one with `-c stage=dev`; the CDK's command line runs this module.

    For a sandbox, `-c expires=MOMENT` and `-c release=2` are also possible.
    """
    app = cdk.App()
    context = app.node.try_get_context
    release = int(context("release") or 1)
    compose(app, settings.choose_stages(context("stage"), context("expires") or "", release))
    cdk.Aspects.of(app).add(cdk_nag.AwsSolutionsChecks())
    app.synth()


if __name__ == "__main__":
    main()
