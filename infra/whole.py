"""Join a stage's stacks to one template, for code that examines a whole stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidings.aws.config.stages import data_stack_name, stack_name

Body = dict[str, Any]

_PARAMETER = "AWS::SSM::Parameter"
_PLACE = [{"Ref": "AWS::Region"}, ":", {"Ref": "AWS::AccountId"}]
# The ARN of a resource by its name, without GetAtt: the parts before the name.
_NAMED = {
    "AWS::DynamoDB::Table": [{"Ref": "AWS::Partition"}, ":dynamodb:", *_PLACE, ":table/"],
    "AWS::S3::Bucket": [{"Ref": "AWS::Partition"}, ":s3:::"],
}


def of_assembly(assembly: Path, stage: str) -> Body:
    """Return the template of *stage*, as it was synthesised into *assembly*."""
    data, work = (
        json.loads((assembly / f"{name(stage)}.template.json").read_text())
        for name in (data_stack_name, stack_name)
    )
    return joined(data, work)


def joined(data: Mapping[str, Any], *others: Mapping[str, Any]) -> Body:
    """
    Return the templates of a stage's stacks as one.

    Parameters of *others* become references to the values that *data* writes to them.

    Raises:
        KeyError: a parameter has no value in *data*.
    """
    resources = dict(data["Resources"])
    outputs = dict(data.get("Outputs", {}))
    asked: dict[str, Any] = dict(data.get("Parameters", {}))
    for other in others:
        resources |= other["Resources"]
        outputs |= other.get("Outputs", {})
        asked |= other.get("Parameters", {})
    written = {
        each["Properties"]["Name"]: each["Properties"]["Value"]
        for each in data["Resources"].values()
        if each["Type"] == _PARAMETER
    }
    read = {
        name: written[each["Default"]]
        for name, each in asked.items()
        if each["Default"].startswith("/tidings/")
    }
    body = {
        "Parameters": {name: each for name, each in asked.items() if name not in read},
        "Resources": {name: each for name, each in resources.items() if each["Type"] != _PARAMETER},
        "Outputs": outputs,
    }
    joined_up: Body = _resolved(body, read, resources)
    return joined_up


def _resolved(value: Any, read: Mapping[str, Any], resources: Mapping[str, Any]) -> Any:
    match value:
        case {"Ref": str(name)} if name in read:
            return read[name]
        case {"Fn::Join": ["", list(parts)]}:
            inner = [_resolved(part, read, resources) for part in parts]
            return _join(_with_arns(inner, resources))
        case dict():
            return {key: _resolved(each, read, resources) for key, each in value.items()}
        case list():
            return [_resolved(each, read, resources) for each in value]
    return value


def _join(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else {"Fn::Join": ["", parts]}


def _with_arns(parts: list[Any], resources: Mapping[str, Any]) -> list[Any]:
    """
    Return *parts* of a text; if they build the ARN of a resource by name, with a reference to its
    ARN.
    """
    for at, part in enumerate(parts):
        name = part.get("Ref", "") if isinstance(part, dict) else ""
        before = _NAMED.get(resources.get(name, {}).get("Type", ""), [])
        start = at - len(before)
        if before and start > 0 and _ends_so(parts[start - 1 : at], before):
            arn = {"Fn::GetAtt": [name, "Arn"]}
            head = [parts[start - 1].removesuffix("arn:")]
            after = _with_arns(parts[at + 1 :], resources)
            return [*parts[: start - 1], *[each for each in head if each], arn, *after]
    return parts


def _ends_so(parts: list[Any], before: list[Any]) -> bool:
    """Return True if *parts* are the beginning of an ARN, up to the name."""
    first, *others = parts
    return isinstance(first, str) and first.endswith("arn:") and _one(others) == _one(before)


def _one(parts: list[Any]) -> str:
    return "".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
