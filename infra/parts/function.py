"""The Lambda functions of `deployment`, their layers, their triggers, and canaries of new code.

In a stage with `canary`, CodeDeploy points an alias to new code for a tenth of the calls, and later
for all calls. If a call, a request or an execution of the stage fails in the meantime, CodeDeploy
restores the alias, and CloudFormation rolls back the update of the stack (ADR 54).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra import FUNCTIONS, NOT_DEPLOYED, builds
from infra.builds import BUNDLE
from infra.names import STREAM_HANDLER, prefix
from infra.parts.logs import FUNCTION, count_failures, log_group
from infra.parts.policies import allow, allow_all
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.aws.config.settings import LIVE

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64


class Layers(Construct):
    """The layers: `shared` for every function, and `tracing` for the functions that are traced.

    With *tokens*, the libraries that verify JWTs are included. In a stage with `hotswap`, the
    layers contain only libraries, and the functions contain our code.
    """

    def __init__(self, scope: Construct, name: str, stage: Stage, *, tokens: bool = False) -> None:
        super().__init__(scope, name)
        self.tracing: list[lambda_.LayerVersion] = []
        if stage.xray:
            self.tracing.append(self._layer("Tracing", builds.build_layer("tracing")))
        self.shared = [
            self._layer("Vendor", builds.build_layer("tokens" if tokens else "functions"))
        ]
        if stage.hotswap:
            builds.bundle()
            return
        # Lambda merges our layers into /opt/python.
        for each in builds.OURS:
            self.shared.append(self._layer(each.title(), builds.build_ours(each)))

    def _layer(self, name: str, folder: Path) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            name,
            code=lambda_.Code.from_asset(str(folder)),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
        )


# At a lower level, boto3 would log the content of operations. At WARN or a higher level, Lambda
# would drop the lines that carry the metrics, and no alarm would ever be raised.
LOG_LEVEL = lambda_.ApplicationLogLevel.INFO
# At this level, Lambda writes its own line, some 500 bytes, only for a failed call; the filter in
# `infra.parts.logs` counts these lines.
SYSTEM_LOG_LEVEL = lambda_.SystemLogLevel.WARN
EACH_CALL = lambda_.SystemLogLevel.INFO
# With this flag, the CDK also publishes a new version of a function if only a layer changed. This
# is necessary, because our code is in layers.
_VERSION_BY_LAYERS = "@aws-cdk/aws-lambda:recognizeLayerVersion"
WAKE_AGE_S = 60  # an older wake-up is useless: the sweep sends a wake-up every minute


FOLLOWER = "follow"  # the folder of the functions that run the log's followers
PORT = 8080
ADAPTER_ACCOUNT = "753240598075"  # AWS's account with the web adapter's layer, in all Regions
ADAPTER_LAYER = "LambdaAdapterLayerArm64"
ADAPTER_VERSION = 27  # the version of the layer with release 1.0.0 of the adapter

ADAPTER_ENVIRONMENT = {
    "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
    "AWS_LWA_INVOKE_MODE": "response_stream",
    "AWS_LWA_PORT": str(PORT),
    # An HTTP check would make the app open a feed. The app is ready as soon as its port is open.
    "AWS_LWA_READINESS_CHECK_PROTOCOL": "tcp",
    # The adapter starts Python without the folders of the layers, so this variable adds them.
    "PYTHONPATH": "/opt/python:/var/runtime",
}


class TidingsFunction(Construct):
    """A function with its own role and log group.

    The role may write to that log group only; `infra.stack` adds the grants of `deployment`.

    The function is called through `live`, an alias of the version that this synthesis publishes. An
    endless function (`deployment.Function`) has no alias: its `live` is the function. A streaming
    function serves its routes at `url`; other functions have no URL. The app of a streaming
    function checks the feed's password and answers preflights. CORS is not configured for the URL,
    because an answer would then contain the CORS headers twice. Because the URL of an endless
    function belongs to the function and not to an alias, it never changes. This matters, because
    clients store the URL.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        function: deployment.Function,
        layers: Sequence[lambda_.ILayerVersion],
        environment: Mapping[str, str],
    ) -> None:
        if function.streams:
            layers = [*layers, _adapter(scope, f"{name}Adapter")]
            paths = [ADAPTER_ENVIRONMENT["PYTHONPATH"]]
            if stage.hotswap:
                paths.insert(0, f"/var/task/{_place(function)}")
            environment = {**environment, **ADAPTER_ENVIRONMENT, "PYTHONPATH": ":".join(paths)}
        super().__init__(scope, name)
        self.node.set_context(_VERSION_BY_LAYERS, True)
        self.blueprint = function
        called = prefix(stage) + function.name
        group = log_group(self, "Logs", stage, path=f"/aws/lambda/{called}")
        principal = iam.ServicePrincipal("lambda.amazonaws.com")
        self.role = iam.Role(self, "Role", assumed_by=principal)
        group.grant_write(self.role)
        count_failures(group, stage, FUNCTION)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=called,
            code=_code(function, stage),
            handler=_handler(function, stage),
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            layers=list(layers),
            environment=dict(environment) | function.environment,
            timeout=cdk.Duration.seconds(function.timeout_s),
            memory_size=memory_mb(function, stage),
            role=self.role,
            log_group=group,
            logging_format=lambda_.LoggingFormat.JSON,
            application_log_level_v2=LOG_LEVEL,
            system_log_level_v2=EACH_CALL if stage.calls_logged else SYSTEM_LOG_LEVEL,
            reserved_concurrent_executions=stage.streams_max if function.endless else None,
            recursive_loop=_loops(function),
            tracing=lambda_.Tracing.ACTIVE if stage.xray else None,
            snap_start=_snapshot(function, stage),
        )
        # A restore changes the names of the tables. The CDK does not know these names, so without
        # this line the CDK would not publish a new version.
        self.function.invalidate_version_based_on(f"tables{stage.tables}")
        self.live: lambda_.Function | lambda_.Alias = self.function
        if not function.endless:
            self.live = lambda_.Alias(
                self, "Live", alias_name=LIVE, version=self.function.current_version
            )
        self.url = self._url() if function.streams else None

    def _url(self) -> str:
        return self.live.add_function_url(
            auth_type=lambda_.FunctionUrlAuthType.NONE,
            invoke_mode=lambda_.InvokeMode.RESPONSE_STREAM,
        ).url

    def forget_missed_wakes(self) -> None:
        """Let Lambda drop failed and old async calls, as the next wake-up does their work."""
        self.live.configure_async_invoke(
            max_event_age=cdk.Duration.seconds(WAKE_AGE_S), retry_attempts=0
        )

    def allow_sockets(self, arns: Sequence[str]) -> None:
        """Allow sending to, and closing, the connections of one stage of one WebSocket API."""
        if arns:
            allow(self.role, ["execute-api:ManageConnections"], arns)

    def allow_wakes(self, stage: Stage) -> None:
        """Allow this function to invoke the functions that it wakes.

        The ARNs are built from names, because references would be circular if two functions wake
        each other.
        """
        stack, invoked = cdk.Stack.of(self), self.blueprint.invokes
        if invoked:
            arns = [_live_arn(stack, prefix(stage) + name) for name in invoked]
            allow(self.role, ["lambda:InvokeFunction"], arns)


def _place(function: deployment.Function) -> str:
    """Return the folder of the code of *function* in the bundle."""
    return f"{FUNCTIONS.name}/{function.folder}"


def _code(function: deployment.Function, stage: Stage) -> lambda_.Code:
    if stage.hotswap:
        return lambda_.Code.from_asset(str(BUNDLE))
    return lambda_.Code.from_asset(str(FUNCTIONS / function.folder), exclude=NOT_DEPLOYED)


def _handler(function: deployment.Function, stage: Stage) -> str:
    place = f"{_place(function)}/" if stage.hotswap else ""
    if function.streams:
        return place + STREAM_HANDLER
    return f"{place.replace('/', '.')}handler.handle"


def memory_mb(function: deployment.Function, stage: Stage) -> int:
    """Return the memory of *function* in *stage*."""
    small = stage.small_followers and function.folder == FOLLOWER
    return function.memory_mb // 2 if small else function.memory_mb


def _loops(function: deployment.Function) -> lambda_.RecursiveLoop | None:
    """Return Lambda's setting for a chain of calls that returns to *function*."""
    return lambda_.RecursiveLoop.ALLOW if function.name in CIRCLING else None


def circling(functions: Iterable[deployment.Function]) -> frozenset[str]:
    """Return the *functions* that may cause calls of themselves, directly or through others.

    Lambda treats such a chain of calls as a mistake and ends it after some 16 calls, unless the
    function allows the chain. The returned functions have to allow it, because a backlog takes more
    than 16 consecutive calls.
    """
    wakes = {function.name: _woken_by(function) for function in functions}
    return frozenset(name for name in wakes if name in _reachable(wakes, name))


def _woken_by(function: deployment.Function) -> frozenset[str]:
    """Return the functions that *function* invokes, directly or by a table with a stream."""
    written = {grant.table for grant in function.grants if _WRITES & {*grant.actions}}
    sources = deployment.STREAM_SOURCES
    return frozenset((*function.invokes, *(s.function for s in sources if s.table in written)))


def _reachable(wakes: Mapping[str, frozenset[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = set(wakes[start])
    while ahead:
        reached |= ahead
        ahead = {after for name in ahead for after in wakes[name]} - reached
    return reached


_WRITES = frozenset(f"dynamodb:{verb}Item" for verb in ("BatchWrite", "Delete", "Put", "Update"))
WOKEN = frozenset(name for function in deployment.FUNCTIONS for name in function.invokes)
CIRCLING = circling(deployment.FUNCTIONS)


def _snapshot(function: deployment.Function, stage: Stage) -> lambda_.SnapStartConf | None:
    if function.name not in stage.snap_start:
        return None
    return lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS


def _live_arn(stack: cdk.Stack, name: str) -> str:
    return stack.format_arn(
        service="lambda",
        resource="function",
        resource_name=f"{name}:{LIVE}",
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )


def _adapter(scope: Construct, name: str) -> lambda_.ILayerVersion:
    layer = f"layer:{ADAPTER_LAYER}:{ADAPTER_VERSION}"
    arn = f"arn:{cdk.Aws.PARTITION}:lambda:{cdk.Aws.REGION}:{ADAPTER_ACCOUNT}:{layer}"
    return lambda_.LayerVersion.from_layer_version_arn(scope, name, arn)


KEY_PREFIX = "aws/lambda"  # Lambda stores a record at aws/lambda/<mapping>/<shard>/<date>/...

_READ = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")


class StreamSource(Construct):
    """The event source mapping that invokes a function with the stream records of a table."""

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
        """Create the mapping.

        Records that could not be handled are stored completely in *given_up*. With *counted*, AWS
        counts the mapping's records, for alarms; each count is billed as a metric.
        """
        super().__init__(scope, name)
        self.source = source
        self.target = target
        _allow(target.role, stream_arn, table_arn, given_up)
        # The CDK's own construct would allow reading, writing and deleting in the whole bucket.
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
        # Lambda checks the permissions of the role when it creates the mapping.
        self.mapping.node.add_dependency(target.role)


def _filter(source: deployment.StreamSource) -> dict[str, object] | None:
    if source.kinds == deployment.KINDS:
        return None
    return {"filters": [{"pattern": json.dumps({"eventName": list(source.kinds)})}]}


def _allow(role: iam.Role, stream_arn: str, table_arn: str, bucket: s3.IBucket) -> None:
    allow_all(
        role,
        (_READ, [stream_arn]),
        # For this action, IAM supports no narrower resource than all streams of the table.
        (("dynamodb:ListStreams",), [f"{table_arn}/stream/*"]),
        (("s3:ListBucket",), [bucket.bucket_arn]),
        (("s3:PutObject",), [bucket.arn_for_objects(f"{KEY_PREFIX}/*")]),
    )


EVENT_AGE_S = 60  # a call that is later than this is dropped; the minimum that AWS accepts


class Clock(Construct):
    """The schedules of a stage in one schedule group; `targets` are the invoked functions."""

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
    """The schedule of one function; a missed run is not repeated, as the next does its work."""

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
                "retryPolicy": {"maximumEventAgeInSeconds": EVENT_AGE_S, "maximumRetryAttempts": 0},
            },
        )


# The functions that have a canary. These are the functions that answer posts, WebSocket messages
# and list requests, and those that run the followers of the log and the relay. `list` runs the code
# of `stream`, which cannot have a canary. A failure of another function only delays an operator.
TRIED = (
    *("ingest", "receive", "list"),
    *("follow-state", "follow-push", "follow-archive", "follow-relay"),
)
ROLLOUT = "CodeDeployDefault.LambdaCanary10Percent5Minutes"
_SHIFTING = ("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig")
_BACK = ["DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM", "DEPLOYMENT_STOP_ON_REQUEST"]


class NoSnapshot(Exception):
    """The setting `snap_start` of a stage lists a function that cannot use SnapStart.

    Streaming functions cannot use SnapStart with the pinned version of the web adapter.
    """

    def __init__(self, name: str, able: Iterable[str]) -> None:
        known = ", ".join(sorted(able))
        super().__init__(f"snap_start: {name!r} cannot use SnapStart; possible are {known}")


class Canaries(Construct):
    """Canaries of *functions*; *alarm* ends a canary.

    An endless function has no alias, so it has no canary. It is updated after all canaries have
    ended successfully.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        functions: Mapping[str, TidingsFunction],
        alarm: cloudwatch.IAlarm,
    ) -> None:
        super().__init__(scope, name)
        self._role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com")
        )
        self._application = codedeploy.LambdaApplication(self, "Application")
        self._alarm = alarm
        alarms = cdk.Stack.of(self).format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name="*",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        allow(self._role, ["cloudwatch:DescribeAlarms"], [alarms])
        tried = [functions[each] for each in TRIED]
        aliases = [self._try(each) for each in tried]
        for function in functions.values():
            if function.blueprint.endless:
                _cfn(function.function).node.add_dependency(*aliases)

    def _try(self, function: TidingsFunction) -> lambda_.CfnAlias:
        self._allow(function)
        # The CDK's own group would give the role a managed policy with rights on every function.
        group = codedeploy.CfnDeploymentGroup(
            self,
            function.node.id,
            application_name=self._application.application_name,
            service_role_arn=self._role.role_arn,
            deployment_config_name=ROLLOUT,
            deployment_style={
                "deploymentType": "BLUE_GREEN",
                "deploymentOption": "WITH_TRAFFIC_CONTROL",
            },
            alarm_configuration={"enabled": True, "alarms": [{"name": self._alarm.alarm_name}]},
            auto_rollback_configuration={"enabled": True, "events": _BACK},
        )
        alias = _cfn_alias(function)
        alias.cfn_options.update_policy = cdk.CfnUpdatePolicy(
            code_deploy_lambda_alias_update=cdk.CfnCodeDeployLambdaAliasUpdate(
                application_name=self._application.application_name, deployment_group_name=group.ref
            )
        )
        group.node.add_dependency(self._role)  # CodeDeploy checks the role's permissions
        alias.node.add_dependency(group)  # the update policy does not imply this dependency
        return alias

    def _allow(self, function: TidingsFunction) -> None:
        """Allow shifting the alias of *function*.

        The alias's ARN is built from the name. A reference would be circular, because the alias
        depends on the group, and the group on the role.
        """
        arn = function.function.function_arn
        allow(self._role, _SHIFTING, [arn, f"{arn}:{LIVE}"])


def check(stage: Stage) -> None:
    """Check the functions that *stage* lists in `snap_start`.

    Raises:
        NoSnapshot: one of these functions cannot start from a snapshot.
    """
    able = {each.name for each in deployment.FUNCTIONS if not each.streams}
    for name in sorted(stage.snap_start - able):
        raise NoSnapshot(name, able)


def _cfn(function: lambda_.Function) -> lambda_.CfnFunction:
    made = function.node.default_child
    assert isinstance(made, lambda_.CfnFunction)
    return made


def _cfn_alias(function: TidingsFunction) -> lambda_.CfnAlias:
    made = function.live.node.default_child
    assert isinstance(made, lambda_.CfnAlias)
    return made
