"""Lambda functions of the blueprint, their common configuration, and their layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import build_layers
from infra.build_layers import BUNDLE
from infra.names import STREAM_HANDLER, prefix
from infra.parts.logs import FUNCTION, count_failures, log_group
from infra.parts.policies import allow
from infra.paths import FUNCTIONS, NOT_DEPLOYED
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.aws.config.settings import LIVE

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64


class Layers(Construct):
    """
    The layers of every function, `shared`, and of those that are traced, `tracing`.

    *tokens*: JWTs are accepted, which needs another library. A stage with `hotswap` has only the
    libraries in layers.
    """

    def __init__(self, scope: Construct, name: str, stage: Stage, *, tokens: bool = False) -> None:
        super().__init__(scope, name)
        self.tracing: list[lambda_.LayerVersion] = []
        if stage.xray:
            self.tracing.append(self._layer("Tracing", build_layers.build("tracing")))
        self.shared = [
            self._layer("Vendor", build_layers.build("tokens" if tokens else "functions")),
        ]
        if stage.hotswap:
            build_layers.bundle()
            return
        # Lambda merges the two below /opt/python.
        for each in build_layers.OURS:
            self.shared.append(self._layer(each.title(), build_layers.build_ours(each)))

    def _layer(self, name: str, folder: Path) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            name,
            code=lambda_.Code.from_asset(str(folder)),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
        )


# At a lower level boto3 would log the content of operations. From WARN on Lambda drops the lines
# that carry the metrics, and no alarm would ever be raised.
LOG_LEVEL = lambda_.ApplicationLogLevel.INFO
# Lambda's own lines, some 500 bytes per call, only for failed calls: `logs` counts them.
SYSTEM_LOG_LEVEL = lambda_.SystemLogLevel.WARN
EACH_CALL = lambda_.SystemLogLevel.INFO
# Otherwise a version would not change if only a layer has changed, and our code is in layers.
_VERSION_BY_LAYERS = "@aws-cdk/aws-lambda:recognizeLayerVersion"
WAKE_AGE_S = 60  # an older wake-up is useless: the sweep sends one every minute


FOLLOWER = "follow"  # the folder of the log's followers
PORT = 8080
ADAPTER_ACCOUNT = "753240598075"  # AWS's, for all commercial Regions
ADAPTER_LAYER = "LambdaAdapterLayerArm64"
ADAPTER_VERSION = 27  # its release 1.0.0

ADAPTER_ENVIRONMENT = {
    "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
    "AWS_LWA_INVOKE_MODE": "response_stream",
    "AWS_LWA_PORT": str(PORT),
    # An HTTP check would open a feed; the app is ready when its port is.
    "AWS_LWA_READINESS_CHECK_PROTOCOL": "tcp",
    # The adapter starts a plain Python: only this variable adds the layers.
    "PYTHONPATH": "/opt/python:/var/runtime",
}


class TidingsFunction(Construct):
    """
    A function with its own role and log group.

    The role may write to that log group only; `infra.stack` adds the blueprint's grants.

    The function is called through `live`, an alias of the version that this synthesis publishes. A
    streaming function serves its routes at `url`; other functions have none. Its app checks the
    feed's password and answers preflights: if CORS were configured here too, an answer would
    contain its header twice. An endless function's URL belongs to the function, not to the alias:
    clients store it, and another URL would be another address.
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
        # Names of tables are only known to CloudFormation, so a restore would not change a version.
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
        """
        Disable retries and queuing of asynchronous calls: the next wake-up does the same work.
        """
        self.live.configure_async_invoke(
            max_event_age=cdk.Duration.seconds(WAKE_AGE_S), retry_attempts=0
        )

    def allow_sockets(self, arns: Sequence[str]) -> None:
        """Allow sending to, and closing, the connections of one stage of one WebSocket API."""
        if arns:
            allow(self.role, ["execute-api:ManageConnections"], arns)

    def allow_wakes(self, stage: Stage) -> None:
        """
        Allow invoking the functions it wakes, by constructed names: functions may wake each other.
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
    """Return Lambda's setting for a chain of calls that returns to the function."""
    return lambda_.RecursiveLoop.ALLOW if function.name in CIRCLING else None


def circling(functions: Iterable[deployment.Function]) -> frozenset[str]:
    """
    Return the *functions* that may reach themselves, alone or through others.

    Lambda treats such a chain of calls as a mistake and ends it after some 16 calls, unless the
    function allows it; a backlog takes more consecutive calls.
    """
    wakes = {function.name: _woken_by(function) for function in functions}
    return frozenset(name for name in wakes if name in _reached(wakes, name))


def _woken_by(function: deployment.Function) -> frozenset[str]:
    """
    Return the functions that it invokes, and those invoked by streams of tables that it writes.
    """
    written = {grant.table for grant in function.grants if _WRITES & {*grant.actions}}
    sources = deployment.STREAM_SOURCES
    return frozenset((*function.invokes, *(s.function for s in sources if s.table in written)))


def _reached(wakes: Mapping[str, frozenset[str]], start: str) -> set[str]:
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
