"""A deployed stage as its operator finds it: names its templates share with the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTROL_OUTPUT = "ControlTable"  # of the stack: the table that holds the profiles
FEEDS_OUTPUT = "Feeds"  # of the stack: the names of its feeds, comma-separated


@dataclass(frozen=True, slots=True)
class Deployed:
    """What the stack of a stage says of itself."""

    control_table: str
    feeds: frozenset[str]


class NoStage(Exception):
    """No stage of that name can be seen with these credentials; the message says why."""


def stack_name(stage: str) -> str:
    return f"tidings-{stage}"


def find(stage: str, cloudformation: Any) -> Deployed:
    """
    The stage's own description, by a CloudFormation client.

    Raises:
        NoStage: there is none, or it is older than this command.
    """
    from botocore.exceptions import ClientError

    name = stack_name(stage)
    try:
        found = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        raise NoStage(f"the stack {name}: {error.response['Error']['Message']}") from None
    outputs = {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", ())}
    return _deployed(name, outputs)


def _deployed(name: str, outputs: Mapping[str, str]) -> Deployed:
    for wanted in (CONTROL_OUTPUT, FEEDS_OUTPUT):
        if wanted not in outputs:
            raise NoStage(f"the stack {name} has no output {wanted}; deploy it again")
    return Deployed(outputs[CONTROL_OUTPUT], frozenset(outputs[FEEDS_OUTPUT].split(",")))
