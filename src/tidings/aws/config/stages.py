"""A deployed stage as its operator finds it: names its templates share with the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tidings.aws.config.settings import parse
from tidings.core.model.feeds import DEFAULT_FEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidings.aws.config.settings import Settings

CONTROL_OUTPUT = "ControlTable"  # of the stack: the table that holds the profiles
ARCHIVE_OUTPUT = "ArchiveUrl"  # of the stack, where it has an archive
FEEDS_OUTPUT = "Feeds"  # of the stack: the names of its feeds, comma-separated
SOURCES_OUTPUT = "Sources"  # of the stack, where feeds are chained: which ones, and to what
FEED_URL_OUTPUT = "FeedUrl"  # of the stack: to post to, and for all that is no stream
STREAM_URL_OUTPUT = "StreamUrl"  # of the stack: Server-Sent Events
SOCKETS_URL_OUTPUT = "SocketsUrl"  # of the stack: WebSockets
ONE_URL_OUTPUT = "Url"  # of the stack, where it has one address for the three of them
SYNC_BUCKET_OUTPUT = "SyncBucket"  # of the stack: where dumps and plans are
SYNC_MACHINE_OUTPUT = "SyncMachine"  # of the stack: what is started with a dump
SOCKETS_PATH = "/ws"  # below one address, as on a server and a twin
STAGE_TAG = "tidings:stage"  # of every resource of a stage: by it a bill is told apart
COMPONENT_TAG = "tidings:component"  # likewise, within a stage
EXPIRES_TAG = "tidings:expires"  # of every resource of a stage that is to be taken away
_URLS = (FEED_URL_OUTPUT, STREAM_URL_OUTPUT, SOCKETS_URL_OUTPUT)
_EXPOSED = frozenset({*_URLS, CONTROL_OUTPUT, FEEDS_OUTPUT})
# What bulk work on a stage has to know of its functions' settings, by the output that tells it.
SETTING_OUTPUTS = {
    "LogTable": "TIDINGS_LOG_TABLE",
    "StateTable": "TIDINGS_STATE_TABLE",
    CONTROL_OUTPUT: "TIDINGS_CONTROL_TABLE",
    FEEDS_OUTPUT: "TIDINGS_FEEDS",
    "RetentionHours": "TIDINGS_RETENTION_HOURS",
}


@dataclass(frozen=True, slots=True)
class Deployed:
    """What the stack of a stage says of itself."""

    control_table: str
    feeds: frozenset[str]


class Addresses(NamedTuple):
    """Where clients of a stage go, by what they want."""

    feed: str
    stream: str
    sockets: str


@dataclass(frozen=True, slots=True)
class Exposed:
    """What a stage shows to the world, and where its passwords are."""

    stage: str
    addresses: Addresses
    control_table: str
    feeds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Syncs:
    """*bucket* by its name, *machine* by its ARN."""

    bucket: str
    machine: str


class NoStage(Exception):
    """No stage of that name can be seen with these credentials; the message says why."""


ACCOUNT_STACK = "tidings-account"  # what an account and Region has once, for all stages


def stack_name(stage: str) -> str:
    """The stack of its functions and addresses, whose outputs describe the stage."""
    return f"tidings-{stage}"


def data_stack_name(stage: str) -> str:
    """The stack of its tables, buckets and key."""
    return f"{stack_name(stage)}-data"


def table_name(stage: str, table: str, suffix: str) -> str:
    """What a table of *stage* is called that was restored; the others have names of AWS's."""
    return f"{stack_name(stage)}-{table}-{suffix}"


def find(stage: str, cloudformation: Any) -> Deployed:
    """
    The stage's own description, by a CloudFormation client.

    Raises:
        NoStage: there is none, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, (CONTROL_OUTPUT, FEEDS_OUTPUT))
    return Deployed(outputs[CONTROL_OUTPUT], frozenset(outputs[FEEDS_OUTPUT].split(",")))


def addresses(stage: str, cloudformation: Any) -> Addresses:
    """
    Raises:
        NoStage: there is none, or it is older than this command.
    """
    return exposed(stage, cloudformation).addresses


def exposed(stage: str, cloudformation: Any) -> Exposed:
    """
    Raises:
        NoStage: there is none, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, _EXPOSED)
    return _exposed(stage, outputs)


def all_exposed(cloudformation: Any) -> list[Exposed]:
    """Every stage that these credentials can see, by name; stacks of others are left out."""
    pages = cloudformation.get_paginator("describe_stacks").paginate()
    stacks = [
        (stack["StackName"].removeprefix(stack_name("")), _outputs_of(stack))
        for page in pages
        for stack in page["Stacks"]
        if stack["StackName"].startswith(stack_name(""))
    ]
    return [
        _exposed(name, outputs) for name, outputs in sorted(stacks) if outputs.keys() >= _EXPOSED
    ]


def _exposed(stage: str, outputs: Mapping[str, str]) -> Exposed:
    feeds = frozenset(outputs[FEEDS_OUTPUT].split(","))
    return Exposed(stage, _addresses(outputs), outputs[CONTROL_OUTPUT], feeds)


def _addresses(outputs: Mapping[str, str]) -> Addresses:
    """Those of the one address where there is one, with the WebSocket where a server has it."""
    url = outputs.get(ONE_URL_OUTPUT)
    if url is None:
        return Addresses(*(outputs[name] for name in _URLS))
    return Addresses(url, url, f"{url.replace('https', 'wss', 1)}{SOCKETS_PATH}")


def settings_of(stage: str, cloudformation: Any) -> dict[str, str]:
    """
    The settings of its functions that `SETTING_OUTPUTS` lists, its archive, what is chained.

    Raises:
        NoStage: there is none, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, SETTING_OUTPUTS)
    variables = {variable: outputs[name] for name, variable in SETTING_OUTPUTS.items()}
    variables["TIDINGS_SOURCES"] = outputs.get(SOURCES_OUTPUT, "")
    return variables | {"TIDINGS_ARCHIVE": outputs.get(ARCHIVE_OUTPUT, "")}


def syncs_of(stage: str, cloudformation: Any) -> Syncs:
    """
    Where its syncs of dumps run.

    Raises:
        NoStage: there is none, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, (SYNC_BUCKET_OUTPUT, SYNC_MACHINE_OUTPUT))
    return Syncs(outputs[SYNC_BUCKET_OUTPUT], outputs[SYNC_MACHINE_OUTPUT])


def output(stage: str, cloudformation: Any, name: str) -> str:
    """
    One output of the stage, by its name.

    Raises:
        NoStage: there is none, or it is older than this command.
    """
    return _outputs(stage, cloudformation, (name,))[name]


def settings(stage: str, variables: Mapping[str, str]) -> Settings:
    """
    Those of its functions, as far as bulk work needs them.

    *variables* differ from those of a twin: on AWS what `settings_of` returns, on a twin its feeds
    and which of them are chained.
    """
    prefix = f"{stack_name(stage)}-"
    names = {
        f"TIDINGS_{table.upper()}_TABLE": f"{prefix}{table}"
        for table in ("log", "state", "control", "connections")
    }
    known = {"TIDINGS_STAGE": stage, "TIDINGS_FUNCTION_PREFIX": prefix}
    return parse(known | names | {"TIDINGS_FEEDS": DEFAULT_FEED} | dict(variables))


def _outputs(stage: str, cloudformation: Any, wanted: Iterable[str]) -> Mapping[str, str]:
    from botocore.exceptions import ClientError

    name = stack_name(stage)
    try:
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        raise NoStage(f"the stack {name}: {error.response['Error']['Message']}") from None
    outputs = _outputs_of(stack)
    for each in sorted(wanted):
        if each not in outputs:
            raise NoStage(f"the stack {name} has no output {each}; deploy it again")
    return outputs


def _outputs_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}
