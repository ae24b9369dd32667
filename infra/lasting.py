"""What an update must neither remove nor make anew, as a change set tells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import cfnlint.schema  # type: ignore[import-untyped]

# Types that hold data, or an address somebody was given: none may be made anew by an update.
LASTING = {
    "AWS::DynamoDB::Table": "its items would be gone",
    "AWS::S3::Bucket": "its objects would be gone",
    "AWS::KMS::Key": "what it encrypted could not be read once it is deleted",
    "AWS::Logs::LogGroup": "its lines would be gone",
    "AWS::ApiGatewayV2::Api": "clients have its address",
    "AWS::Lambda::Url": "clients have its address",
    "AWS::SNS::Topic": "its subscriptions would be gone",
}
REGION = "us-east-1"  # whose schemas of types are looked at: they have them all


def replaced(changes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Of a change set, what is removed or made anew and must not be."""
    return [
        f"{each['LogicalResourceId']} ({each['ResourceType']})"
        for each in (change["ResourceChange"] for change in changes)
        if each["ResourceType"] in LASTING and (each["Action"] == "Remove" or _made_anew(each))
    ]


def _made_anew(change: Mapping[str, Any]) -> bool:
    """
    A reference to something that changes *might* make anew what refers to it, as far as a change
    set can tell (a dynamic evaluation); what became of it is seen by its physical id. MiniStack
    says "Conditionally" of every property of a type that it has no table for, so AWS's own schema
    is asked which of them replace.
    """
    if change.get("Replacement") != "Conditional":
        return change.get("Replacement") == "True"
    replacing = {path[0] for path in create_only(change["ResourceType"])}
    return any(
        detail.get("Evaluation") != "Dynamic" and _replaces(detail["Target"], replacing)
        for detail in change.get("Details", ())
    )


def _replaces(target: Mapping[str, str], replacing: Collection[str]) -> bool:
    match target.get("RequiresRecreation", "Never"):
        case "Always":
            return True
        case "Conditionally":
            return target.get("Name") in replacing
    return False


def create_only(kind: str) -> set[tuple[str, ...]]:
    """Paths of the properties of a type that only a new resource can have differently."""
    schema = cfnlint.schema.PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, kind).schema
    names = ("createOnlyProperties", "conditionalCreateOnlyProperties")
    paths = [path for name in names for path in schema.get(name, [])]
    return {tuple(path.removeprefix("/properties/").split("/")) for path in paths}
