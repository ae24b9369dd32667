"""One Lambda function of the blueprint, with what all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from tidings.aws.config import deployment

from infra import circles
from infra.names import prefix
from infra.parts.layers import ARCHITECTURE, RUNTIME
from infra.parts.log_group import log_group
from infra.paths import FUNCTIONS, NOT_DEPLOYED
from infra.settings import Stage

# Below it boto3 would write what operations hold. From WARN on Lambda drops the lines that carry
# the metrics, and every alarm of ours would be green for ever.
LOG_LEVEL = lambda_.ApplicationLogLevel.INFO
WAKE_AGE_S = 60  # a bell older than this is worthless: the sweep rings every minute


class TidingsFunction(Construct):
    """
    A function with a role and a log group of its own.

    The role may write that log group and nothing else; `infra.stack` adds the blueprint's grants.
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
        handler: str = "handler.handle",
        concurrency_max: int | None = None,
    ) -> None:
        super().__init__(scope, name)
        self.blueprint = function
        called = prefix(stage) + function.name
        group = log_group(self, "Logs", stage, path=f"/aws/lambda/{called}")
        principal = iam.ServicePrincipal("lambda.amazonaws.com")
        self.role = iam.Role(self, "Role", assumed_by=principal)
        group.grant_write(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=called,
            code=lambda_.Code.from_asset(str(FUNCTIONS / function.folder), exclude=NOT_DEPLOYED),
            handler=handler,
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            layers=list(layers),
            environment=dict(environment) | function.environment,
            timeout=cdk.Duration.seconds(function.timeout_s),
            memory_size=function.memory_mb,
            role=self.role,
            log_group=group,
            logging_format=lambda_.LoggingFormat.JSON,
            application_log_level_v2=LOG_LEVEL,
            reserved_concurrent_executions=concurrency_max,
            recursive_loop=_loops(function),
        )

    def forget_missed_wakes(self) -> None:
        """Neither retry nor keep an asynchronous call: the next bell does the same work."""
        self.function.configure_async_invoke(
            max_event_age=cdk.Duration.seconds(WAKE_AGE_S), retry_attempts=0
        )

    def allow_sockets(self, arns: Sequence[str]) -> None:
        """Post to, and cut, the connections of one stage of one WebSocket API."""
        self._allow("execute-api:ManageConnections", arns)

    def allow_wakes(self, stage: Stage) -> None:
        """Call the functions it wakes, by their constructed names: they may wake each other."""
        names = [prefix(stage) + name for name in self.blueprint.invokes]
        stack = cdk.Stack.of(self)
        self._allow("lambda:InvokeFunction", [_function_arn(stack, name) for name in names])

    def _allow(self, action: str, resources: Sequence[str]) -> None:
        if resources:
            self.role.add_to_policy(
                iam.PolicyStatement(actions=[action], resources=list(resources))
            )


def _loops(function: deployment.Function) -> lambda_.RecursiveLoop | None:
    """A backlog takes more calls in a row than the 16 after which Lambda ends a loop."""
    return lambda_.RecursiveLoop.ALLOW if function.name in circles.CIRCLING else None


def _function_arn(stack: cdk.Stack, name: str) -> str:
    return stack.format_arn(
        service="lambda",
        resource="function",
        resource_name=name,
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )
