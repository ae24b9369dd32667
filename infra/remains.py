"""What stacks consist of, and what of it is still there once it is destroyed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

TABLE, BUCKET, LOGS = "AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::Logs::LogGroup"
STORES = (TABLE, BUCKET, LOGS)
RETAINED = ("Retain", "RetainExceptOnCreate")

Parts = dict[str, "Part"]


class Clients(Protocol):
    """Where the stacks are: an account of AWS, or an emulator of one."""

    def client(self, service: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Part:
    """A resource of a stack; *name* is what AWS calls it."""

    kind: str
    name: str


class WrongRemains(Exception):
    """Something is gone that was to stay, or the other way round."""


def parts(aws: Clients, *stacks: str) -> Parts:
    """Every resource of *stacks*, by logical id."""
    pages = aws.client("cloudformation").get_paginator("list_stack_resources")
    return {
        each["LogicalResourceId"]: Part(each["ResourceType"], each["PhysicalResourceId"])
        for stack in stacks
        for page in pages.paginate(StackName=stack)
        for each in page["StackResourceSummaries"]
        if each.get("PhysicalResourceId")  # one that is still to be made has none
    }


def empty(aws: Clients, resources: Parts) -> None:
    """Delete the objects of every bucket: CloudFormation deletes none that has any."""
    objects = aws.client("s3")
    for each in resources.values():
        if each.kind == BUCKET:
            for page in objects.get_paginator("list_objects_v2").paginate(Bucket=each.name):
                listed = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
                if listed:
                    objects.delete_objects(Bucket=each.name, Delete={"Objects": listed})


def left(aws: Clients, resources: Parts, began_ms: float = math.inf) -> set[str]:
    """
    Logical ids of the stores among *resources* that are still there.

    A log group that is younger than *began_ms*, when the stack began to go, does not count: a call
    that ended late wrote its lines, and so made the group anew.
    """
    stores = {name: each for name, each in resources.items() if each.kind in STORES}
    there = {kind: _there(aws, kind, began_ms) for kind in {each.kind for each in stores.values()}}
    return {name for name, each in stores.items() if each.name in there[each.kind]}


def check(aws: Clients, template: Mapping[str, Any], resources: Parts, began_ms: float) -> str:
    """
    How many stores the destroyed stack has left behind, as its *template* wants them to be;
    *began_ms* as in `left`.

    Raises:
        WrongRemains: others than these.
    """
    stores = {name: each for name, each in resources.items() if each.kind in STORES}
    there = left(aws, stores, began_ms)
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


def _there(aws: Clients, kind: str, began_ms: float) -> set[str]:
    match kind:
        case "AWS::DynamoDB::Table":
            pages = aws.client("dynamodb").get_paginator("list_tables").paginate()
            return {name for page in pages for name in page["TableNames"]}
        case "AWS::S3::Bucket":
            return {each["Name"] for each in aws.client("s3").list_buckets()["Buckets"]}
    pages = aws.client("logs").get_paginator("describe_log_groups").paginate()
    groups = (each for page in pages for each in page["logGroups"])
    return {each["logGroupName"] for each in groups if each["creationTime"] < began_ms}
