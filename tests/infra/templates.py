"""The synthesised templates of a stage as one, and how to find things in it."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra import settings, synth
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name

if TYPE_CHECKING:
    import aws_cdk as cdk

Resource = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """The templates of one stage as `infra.synth` joins them, and how to find things in it."""

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
    return Template(stage, synth.join_templates(data, *found.values()))


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
