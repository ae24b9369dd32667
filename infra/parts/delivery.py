"""
Canaries: CodeDeploy shifts an alias to new code for a tenth of the calls, then for all of them.

It rolls back automatically if a call, a request or an execution of the stage fails in the meantime,
and CloudFormation rolls the update back with it (ADR 54).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.parts.function import TidingsFunction
from infra.parts.policies import allow
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.aws.config.settings import LIVE

# The functions of producers, subscribers and list readers (`list` runs the code of `stream`), and
# the followers of the log; a failure of any other function only delays an operator.
TRIED = (
    *("ingest", "receive", "list"),
    *("follow-state", "follow-push", "follow-archive", "follow-relay"),
)
PACE = "CodeDeployDefault.LambdaCanary10Percent5Minutes"
_SHIFTING = ("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig")
_BACK = ["DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM", "DEPLOYMENT_STOP_ON_REQUEST"]


class NoSnapshot(Exception):
    """
    The pinned version of the web adapter, used by streaming functions, does not support SnapStart.
    """

    def __init__(self, name: str, able: Iterable[str]) -> None:
        super().__init__(f"snap_start: {name!r} is none of {', '.join(sorted(able))}")


class Canaries(Construct):
    """
    Canaries of *functions*; *alarm* ends a canary.

    The function with a permanent address, which has no alias, is updated once all canaries have
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
        # The CDK's own group would give the role a managed policy for every function.
        group = codedeploy.CfnDeploymentGroup(
            self,
            function.node.id,
            application_name=self._application.application_name,
            service_role_arn=self._role.role_arn,
            deployment_config_name=PACE,
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
                application_name=self._application.application_name,
                deployment_group_name=group.ref,
            )
        )
        group.node.add_dependency(self._role)  # CodeDeploy checks the permissions of the role
        alias.node.add_dependency(group)  # the update policy does not imply this dependency
        return alias

    def _allow(self, function: TidingsFunction) -> None:
        """
        Allow shifting the alias, by a constructed ARN: the alias depends on the group, and that on
        the role.
        """
        arn = function.function.function_arn
        allow(self._role, _SHIFTING, [arn, f"{arn}:{LIVE}"])


def check(stage: Stage) -> None:
    """
    Check the functions with snapshots.

    Raises:
        NoSnapshot: *stage* lists a function that cannot start from one.
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
