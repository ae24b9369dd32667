"""
An account for steps: moto's, with stacks of ours, because moto's own need packages that we lack.

A stack is what CloudFormation would have made: deleted with it, refused where a bucket has objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError
from tidings.aws.config.stages import Addresses

from infra.remains import BUCKET, LOGS, TABLE, Part

REGION = "eu-west-1"


@dataclass
class Stack:
    """*makes* is the logical id of each resource and what it is; *status* as AWS spells it."""

    makes: dict[str, Part]
    status: str = "CREATE_COMPLETE"
    tags: dict[str, str] = field(default_factory=dict)


class Stacks:
    """The client of CloudFormation, as far as a run uses it."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def describe_stacks(self, StackName: str) -> dict[str, Any]:
        stack = self._found(StackName)
        if stack.status == "UPDATE_IN_PROGRESS":
            self._account.rests_after -= 1
            if self._account.rests_after < 0:
                stack.status = "UPDATE_COMPLETE"
        return {"Stacks": [self._described(StackName, self._found(StackName))]}

    def get_paginator(self, operation: str) -> _Pages:
        return _Pages(self._all if operation == "describe_stacks" else self._parts)

    def describe_stack_events(self, StackName: str) -> dict[str, Any]:
        failed = {"LogicalResourceId": "Bucket", "ResourceStatus": "DELETE_FAILED"}
        return {"StackEvents": [failed | {"ResourceStatusReason": "it is not empty"}]}

    def delete_stack(self, StackName: str) -> None:
        stack = self._account.stacks[StackName]
        if stack.status == "UPDATE_IN_PROGRESS":
            error = {"Error": {"Code": "ValidationError", "Message": "an update is in progress"}}
            raise ClientError(error, "DeleteStack")  # type: ignore[arg-type]
        self._account.deleted.append(StackName)
        for name, part in list(stack.makes.items()):
            if not self._account.delete(part):
                stack.status = "DELETE_FAILED"
                return
            del stack.makes[name]
        del self._account.stacks[StackName]

    def _all(self) -> Iterator[dict[str, Any]]:
        listed = [self._described(name, each) for name, each in self._account.stacks.items()]
        yield {"Stacks": listed}

    def _parts(self, StackName: str) -> Iterator[dict[str, Any]]:
        parts = self._found(StackName).makes.items()
        yield {
            "StackResourceSummaries": [
                {
                    "LogicalResourceId": name,
                    "ResourceType": each.kind,
                    "PhysicalResourceId": each.name,
                }
                for name, each in parts
            ]
        }

    def _described(self, name: str, stack: Stack) -> dict[str, Any]:
        tags = [{"Key": key, "Value": value} for key, value in stack.tags.items()]
        return {"StackName": name, "StackStatus": stack.status, "Tags": tags, "Outputs": []}

    def _found(self, name: str) -> Stack:
        if name not in self._account.stacks:
            missing = f"Stack with id {name} does not exist"
            error = {"Error": {"Code": "ValidationError", "Message": missing}}
            raise ClientError(error, "DescribeStacks")  # type: ignore[arg-type]
        return self._account.stacks[name]


class _Pages:
    def __init__(self, pages: Callable[..., Iterator[dict[str, Any]]]) -> None:
        self.paginate = pages


class Account:
    """
    Implements `Place`, where moto is on. *kept* are names that a stack leaves behind against its
    policy. *rests_after* is how often a stack is looked at before an update of it has ended.
    """

    name, emulated, account, region = "AWS", False, "123456789012", REGION

    def __init__(self, *kept: str) -> None:
        self.environment: Mapping[str, str] = {}
        self.stacks: dict[str, Stack] = {}
        self.deleted: list[str] = []
        self.rests_after = 0
        self._kept = kept

    def client(self, service: str) -> Any:
        made: Any = boto3.client
        return Stacks(self) if service == "cloudformation" else made(service, region_name=REGION)

    def prepare(self, assembly: Path) -> None:
        pass

    @contextmanager
    def serving(self, stage: str, assembly: Path) -> Iterator[Addresses]:
        yield Addresses("https://feed", "https://stream", "wss://sockets")

    def stack(self, name: str, **parts: Part) -> None:
        """Deploy one that has *parts*."""
        for part in parts.values():
            self._make(part)
        self.stacks[name] = Stack(dict(parts))

    def delete(self, part: Part) -> bool:
        """Whether it could be."""
        if part.name in self._kept:
            return True
        match part.kind:
            case "AWS::S3::Bucket":
                try:
                    self.client("s3").delete_bucket(Bucket=part.name)
                except ClientError:
                    return False
            case "AWS::DynamoDB::Table":
                self.client("dynamodb").delete_table(TableName=part.name)
            case "AWS::Logs::LogGroup":
                self.client("logs").delete_log_group(logGroupName=part.name)
        return True

    def _make(self, part: Part) -> None:
        if part.kind == BUCKET:
            place = {"LocationConstraint": REGION}
            self.client("s3").create_bucket(Bucket=part.name, CreateBucketConfiguration=place)
        elif part.kind == TABLE:
            self.client("dynamodb").create_table(
                TableName=part.name,
                AttributeDefinitions=[{"AttributeName": "feed", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "feed", "KeyType": "HASH"}],
                BillingMode="PAY_PER_REQUEST",
            )
        elif part.kind == LOGS:
            self.client("logs").create_log_group(logGroupName=part.name)
