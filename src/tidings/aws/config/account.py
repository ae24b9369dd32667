"""The resources and limits of an AWS account that must be known before a stage is deployed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.aws.config.stages import stack_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Clients = Callable[[str], Any]

BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"  # the CDK's default parameter of its version
_NO_STACK = "ValidationError"  # CloudFormation has no specific code for a missing stack
_LOGS = ("/aws/lambda/", "/aws/apigateway/", "/aws/vendedlogs/states/", "/aws/emr-serverless/")


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The account's limit of concurrent invocations, and the part reserved for functions."""

    quota: int
    reserved: int


class Account:
    """
    Read-only requests to an account; *clients* creates a boto3 client by service name.

    Each method raises botocore's ClientError if the credentials lack the permission.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def concurrency(self) -> Concurrency:
        limit = self._clients("lambda").get_account_settings()["AccountLimit"]
        quota = limit["ConcurrentExecutions"]
        return Concurrency(quota, quota - limit["UnreservedConcurrentExecutions"])

    def bootstrap_version(self) -> int | None:
        """
        Return the version of the CDK's bootstrap; None if the account and Region are not
        bootstrapped.
        """
        parameters = self._clients("ssm")
        try:
            return int(parameters.get_parameter(Name=BOOTSTRAP)["Parameter"]["Value"])
        except parameters.exceptions.ParameterNotFound:
            return None

    def stack_status(self, stack: str) -> str | None:
        """
        Return the status of a stack, as spelled by CloudFormation; None if the stack does not
        exist.
        """
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
        """Return the role with which API Gateway writes logs, one for the account and Region."""
        arn: str | None = self._clients("apigateway").get_account().get("cloudwatchRoleArn")
        return arn or None

    def _log_groups(self, stage: str) -> Iterator[str]:
        pages = self._clients("logs").get_paginator("describe_log_groups")
        for path in _LOGS:
            for page in pages.paginate(logGroupNamePrefix=f"{path}{stack_name(stage)}-"):
                yield from (each["logGroupName"] for each in page["logGroups"])


def _below(stage: str, names: Iterator[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(f"{stack_name(stage)}-"))
