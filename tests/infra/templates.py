"""The synthesised templates of a stage as one, and how to find things in it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra import settings
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name, stack_name

if TYPE_CHECKING:
    import aws_cdk as cdk

Resource = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """The templates of one stage joined, and how to find things in it."""

    stage: settings.Stage
    body: dict[str, Any]

    def resources(self, kind: str) -> dict[str, Resource]:
        """Return the properties of each resource of a type, by logical id."""
        found = self.body["Resources"].items()
        return {name: each.get("Properties", {}) for name, each in found if each["Type"] == kind}

    def only(self, kind: str, begins: str) -> tuple[str, Resource]:
        """Return logical id and properties of the one *kind* with this prefix of its logical id."""
        ((name, properties),) = (
            each for each in self.resources(kind).items() if each[0].startswith(begins)
        )
        return name, properties

    def failing(self, begins: str) -> str:
        """Return the pattern of failures in the one log group with this prefix of its id."""
        return str(self.only("AWS::Logs::MetricFilter", begins)[1]["FilterPattern"])

    def function(self, name: str) -> tuple[str, Resource]:
        """Logical id and properties of the function that the blueprint calls *name*."""
        called = f"tidings-{self.stage.name}-{name}"
        for logical, each in self.resources("AWS::Lambda::Function").items():
            if each["FunctionName"] == called:
                return logical, each
        raise LookupError(called)

    def live(self, name: str) -> str:
        """Logical id of the alias of the function that the blueprint calls *name*."""
        called = {"Ref": self.function(name)[0]}
        aliases = self.resources("AWS::Lambda::Alias").items()
        (found,) = (logical for logical, each in aliases if each["FunctionName"] == called)
        return found

    def statements(self, role: str) -> list[Resource]:
        """Return all statements of the role with logical id *role*."""
        return [
            statement
            for policy in self.resources("AWS::IAM::Policy").values()
            if {"Ref": role} in policy["Roles"]
            for statement in policy["PolicyDocument"]["Statement"]
        ]

    def may(self, role: str) -> set[tuple[str, str]]:
        """Return the same as pairs of an action and a resource."""
        return {
            (action, text(resource))
            for statement in self.statements(role)
            for resource in as_list(statement["Resource"])
            for action in as_list(statement["Action"])
        }

    def role_of(self, function: str) -> str:
        """Logical id of a function's role."""
        return str(self.function(function)[1]["Role"]["Fn::GetAtt"][0])


@cache
def outdir() -> str:
    """Return the folder for files of all apps of this process: each file is copied once."""
    return tempfile.mkdtemp(prefix="cdk.out-")


def app(folder: Path | None = None) -> cdk.App:
    """An app for templates with settings of a test, with its files in *folder* or those of all
    apps.

    The CDK's validator, which starts in 7 s of CPU and takes 1 s a template, examines the templates
    of all stages (`assembly`).
    """
    import aws_cdk

    chosen = str(folder or outdir())
    return aws_cdk.App(outdir=chosen, builtin_cloud_formation_validation=False)


def synthesised(stage: settings.Stage) -> Template:
    """The template of a stage with settings of a test; the CDK needs Node.js to be imported."""
    from infra.stack import compose

    made = app()
    compose(made, [stage])
    found = {each.stack_name: each.template for each in made.synth().stacks}
    del found[ACCOUNT_STACK]
    data = found.pop(data_stack_name(stage.name))
    return Template(stage, join_templates(data, *found.values()))


def text(value: Any) -> str:
    """Return a value with its references written out: `<Logical.Arn>/stream/*`."""
    match value:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(text(part) for part in parts)
        case {"Fn::Sub": str(pattern)}:
            return re.sub(r"\$\{([^}]+)\}", r"<\1>", pattern)
        case _:
            return str(value)


def as_list(value: Any) -> list[Any]:
    """IAM writes lists of one as their element."""
    return value if isinstance(value, list) else [value]


_PARAMETER = "AWS::SSM::Parameter"
_PLACE = [{"Ref": "AWS::Region"}, ":", {"Ref": "AWS::AccountId"}]
# For each type of resource, the parts that precede the name in an ARN that is built from the name.
_NAMED = {
    "AWS::DynamoDB::Table": [{"Ref": "AWS::Partition"}, ":dynamodb:", *_PLACE, ":table/"],
    "AWS::S3::Bucket": [{"Ref": "AWS::Partition"}, ":s3:::"],
}


def of_assembly(assembly: Path, stage: str) -> dict[str, Any]:
    """Return the template of *stage*, as it was synthesised into *assembly*."""
    data, work = (
        json.loads((assembly / f"{name(stage)}.template.json").read_text())
        for name in (data_stack_name, stack_name)
    )
    return join_templates(data, work)


def join_templates(data: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the templates of a stage's stacks as one.

    A reference in *others* to a parameter is replaced by the value that *data* writes to the
    parameter.

    Raises:
        KeyError: a parameter has no value in *data*.
    """
    resources = dict(data["Resources"])
    outputs = dict(data.get("Outputs", {}))
    parameters: dict[str, Any] = dict(data.get("Parameters", {}))
    for other in others:
        resources |= other["Resources"]
        outputs |= other.get("Outputs", {})
        parameters |= other.get("Parameters", {})
    written = {
        each["Properties"]["Name"]: each["Properties"]["Value"]
        for each in data["Resources"].values()
        if each["Type"] == _PARAMETER
    }
    read = {
        name: written[each["Default"]]
        for name, each in parameters.items()
        if each["Default"].startswith("/tidings/")
    }
    body = {
        "Parameters": {name: each for name, each in parameters.items() if name not in read},
        "Resources": {name: each for name, each in resources.items() if each["Type"] != _PARAMETER},
        "Outputs": outputs,
    }
    joined_up: dict[str, Any] = _resolve(body, read, resources)
    return joined_up


def _resolve(value: Any, read: Mapping[str, Any], resources: Mapping[str, Any]) -> Any:
    match value:
        case {"Ref": str(name)} if name in read:
            return read[name]
        case {"Fn::Join": ["", list(parts)]}:
            inner = [_resolve(part, read, resources) for part in parts]
            return _join(_with_arns(inner, resources))
        case dict():
            return {key: _resolve(each, read, resources) for key, each in value.items()}
        case list():
            return [_resolve(each, read, resources) for each in value]
    return value


def _join(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else {"Fn::Join": ["", parts]}


def _with_arns(parts: list[Any], resources: Mapping[str, Any]) -> list[Any]:
    """Return *parts* of a text, with references in place of ARNs that they build from names."""
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
    """Return True if *parts* end with *before*, the beginning of an ARN up to the name."""
    first, *others = parts
    return isinstance(first, str) and first.endswith("arn:") and _one(others) == _one(before)


def _one(parts: list[Any]) -> str:
    return "".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
