"""What an account has and allows, as who deploys a stage has to know it before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.aws.config.stages import stack_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Clients = Callable[[str], Any]

BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"  # where the CDK writes it, unless told otherwise
_NO_STACK = "ValidationError"  # CloudFormation has no code of its own for it
_LOGS = ("/aws/lambda/", "/aws/apigateway/", "/aws/vendedlogs/states/", "/aws/emr-serverless/")


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many invocations run at once: of the account, and of it set aside for functions."""

    quota: int
    reserved: int


class Account:
    """
    *clients* makes a boto3 client by the name of its service.

    Each method raises botocore's ClientError where the credentials may not ask.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def concurrency(self) -> Concurrency:
        limit = self._clients("lambda").get_account_settings()["AccountLimit"]
        quota = limit["ConcurrentExecutions"]
        return Concurrency(quota, quota - limit["UnreservedConcurrentExecutions"])

    def bootstrap_version(self) -> int | None:
        """Of the CDK's bootstrap; None where the account and Region have none."""
        parameters = self._clients("ssm")
        try:
            return int(parameters.get_parameter(Name=BOOTSTRAP)["Parameter"]["Value"])
        except parameters.exceptions.ParameterNotFound:
            return None

    def stack_status(self, stack: str) -> str | None:
        """Of a stack, as CloudFormation spells it; None where there is none of that name."""
        from botocore.exceptions import ClientError

        stacks = self._clients("cloudformation")
        try:
            (found,) = stacks.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] == _NO_STACK:
                return None
            raise
        return str(found["StackStatus"])

    def functions(self, stage: str) -> list[str]:
        pages = self._clients("lambda").get_paginator("list_functions").paginate()
        return _below(stage, (f["FunctionName"] for page in pages for f in page["Functions"]))

    def log_groups(self, stage: str) -> list[str]:
        return list(self._log_groups(stage))

    def machines(self, stage: str) -> list[str]:
        pages = self._clients("stepfunctions").get_paginator("list_state_machines").paginate()
        return _below(stage, (each["name"] for page in pages for each in page["stateMachines"]))

    def tables(self, stage: str) -> list[str]:
        pages = self._clients("dynamodb").get_paginator("list_tables").paginate()
        return _below(stage, (name for page in pages for name in page["TableNames"]))

    def buckets(self, stage: str) -> list[str]:
        buckets = self._clients("s3").list_buckets()["Buckets"]
        return _below(stage, (each["Name"] for each in buckets))

    def gateway_role(self) -> str | None:
        """The role under which API Gateway writes logs, one for the account and Region."""
        arn: str | None = self._clients("apigateway").get_account().get("cloudwatchRoleArn")
        return arn or None

    def _log_groups(self, stage: str) -> Iterator[str]:
        pages = self._clients("logs").get_paginator("describe_log_groups")
        for path in _LOGS:
            for page in pages.paginate(logGroupNamePrefix=f"{path}{stack_name(stage)}-"):
                yield from (each["logGroupName"] for each in page["logGroups"])


def _below(stage: str, names: Iterator[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(f"{stack_name(stage)}-"))
