"""What stacks consist of, and what of it is still there once it is destroyed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.emulator import Emulator

TABLE, BUCKET, LOGS = "AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::Logs::LogGroup"
STORES = (TABLE, BUCKET, LOGS)
RETAINED = ("Retain", "RetainExceptOnCreate")

Parts = dict[str, "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """A resource of a stack; *name* is what AWS calls it."""

    kind: str
    name: str


class WrongRemains(Exception):
    """Something is gone that was to stay, or the other way round."""


def parts(aws: Emulator, *stacks: str) -> Parts:
    """Every resource of *stacks*, by logical id."""
    pages = aws.client("cloudformation").get_paginator("list_stack_resources")
    return {
        each["LogicalResourceId"]: Part(each["ResourceType"], each["PhysicalResourceId"])
        for stack in stacks
        for page in pages.paginate(StackName=stack)
        for each in page["StackResourceSummaries"]
    }


def empty(aws: Emulator, resources: Parts) -> None:
    """Delete the objects of every bucket: CloudFormation deletes none that has any."""
    objects = aws.client("s3")
    for each in resources.values():
        if each.kind == BUCKET:
            for page in objects.get_paginator("list_objects_v2").paginate(Bucket=each.name):
                for entry in page.get("Contents", []):
                    objects.delete_object(Bucket=each.name, Key=entry["Key"])


def check(aws: Emulator, template: Mapping[str, Any], resources: Parts) -> str:
    """
    How many stores the destroyed stack has left behind, as its *template* wants them to be.

    Raises:
        WrongRemains: others than these.
    """
    stores = {name: each for name, each in resources.items() if each.kind in STORES}
    there = {name for name, each in stores.items() if each.name in _there(aws, each.kind)}
    policies = {name: template["Resources"][name].get("DeletionPolicy") for name in stores}
    wanted = {name for name, policy in policies.items() if policy in RETAINED}
    if there != wanted:
        wrong = sorted(there ^ wanted)
        raise WrongRemains(f"there or gone against their DeletionPolicy: {', '.join(wrong)}")
    if not stores:
        raise WrongRemains("the stack had no store at all")
    return _counted(stores, there)


def _counted(stores: Parts, there: set[str]) -> str:
    words = {TABLE: "tables", BUCKET: "buckets", LOGS: "log groups"}
    counts = []
    for kind, word in words.items():
        all_of_kind = {name for name, each in stores.items() if each.kind == kind}
        counts.append(f"{len(all_of_kind & there)} of {len(all_of_kind)} {word}")
    return ", ".join(counts)


def _there(aws: Emulator, kind: str) -> set[str]:
    match kind:
        case "AWS::DynamoDB::Table":
            pages = aws.client("dynamodb").get_paginator("list_tables").paginate()
            return {name for page in pages for name in page["TableNames"]}
        case "AWS::S3::Bucket":
            return {each["Name"] for each in aws.client("s3").list_buckets()["Buckets"]}
    pages = aws.client("logs").get_paginator("describe_log_groups").paginate()
    return {each["logGroupName"] for page in pages for each in page["logGroups"]}
