"""The names and outputs of a deployed stage, for its templates and the commands of operators.

`Account` reads the resources and limits of an AWS account, which are checked before a deployment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from tidings.aws.config.settings import Settings
from tidings.core.errors import TidingsError
from tidings.core.model.feeds import DEFAULT_FEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Clients = Callable[[str], Any]


ACCOUNT_STACK = "tidings-account"  # the stack for all stages of an account in a Region
# The outputs of a stage's stack.
CONTROL_OUTPUT = "ControlTable"  # the name of the control table, which has the profiles
ARCHIVE_OUTPUT = "ArchiveUrl"  # the URL of the archive, if the stage has an archive
FEEDS_OUTPUT = "Feeds"  # the names of the feeds, comma-separated
SOURCES_OUTPUT = "Sources"  # the value of TIDINGS_SOURCES, if feeds are chained
FEED_URL_OUTPUT = "FeedUrl"  # the base URL of posts and of all requests except streams
STREAM_URL_OUTPUT = "StreamUrl"  # the base URL of event streams
SOCKETS_URL_OUTPUT = "SocketsUrl"  # the URL of WebSockets
ONE_URL_OUTPUT = "Url"  # the base URL of all requests, if the stage has one address for them
SYNC_BUCKET_OUTPUT = "SyncBucket"  # the name of the bucket of dumps and plans
SYNC_MACHINE_OUTPUT = "SyncMachine"  # the ARN of the state machine that syncs a feed with a dump
LOCAL_STAGE = "local"  # the stage whose tables are at `--endpoint-url`
SOCKETS_PATH = "/ws"  # the path of WebSockets at the one address, as on a server
STAGE_TAG = "tidings:stage"  # a tag of every resource, which separates stages in a bill
COMPONENT_TAG = "tidings:component"  # a tag that separates the components of a stage in a bill
EXPIRES_TAG = "tidings:expires"  # a tag of every resource of a temporary stage
_URLS = (FEED_URL_OUTPUT, STREAM_URL_OUTPUT, SOCKETS_URL_OUTPUT)
_EXPOSED = frozenset({*_URLS, CONTROL_OUTPUT, FEEDS_OUTPUT})
# The settings of a stage's functions that bulk jobs need, by the name of their stack output.
SETTING_OUTPUTS = {
    "LogTable": "TIDINGS_LOG_TABLE",
    "StateTable": "TIDINGS_STATE_TABLE",
    CONTROL_OUTPUT: "TIDINGS_CONTROL_TABLE",
    FEEDS_OUTPUT: "TIDINGS_FEEDS",
    "RetentionHours": "TIDINGS_RETENTION_HOURS",
}


class Credentials(TypedDict):
    """The arguments with which boto3 creates a client for another DynamoDB than AWS's."""

    region_name: str
    aws_access_key_id: str
    aws_secret_access_key: str


# The credentials for `--endpoint-url`, which must not get the operator's own. DynamoDB Local checks
# none.
LOCAL_CREDENTIALS = Credentials(
    region_name="us-east-1", aws_access_key_id="local", aws_secret_access_key="local"
)


@dataclass(frozen=True, slots=True)
class Deployed:
    """The outputs of a stage's stack."""

    control_table: str
    feeds: frozenset[str]


class Addresses(NamedTuple):
    """The base URLs of a stage: for requests to a feed, for event streams, and for WebSockets."""

    feed: str
    stream: str
    sockets: str


@dataclass(frozen=True, slots=True)
class Exposed:
    """The public addresses of a stage, its feeds, and the table that has its passwords."""

    stage: str
    addresses: Addresses
    control_table: str
    feeds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Syncs:
    """The resources for syncs: the name of the bucket, and the ARN of the state machine."""

    bucket: str
    machine: str


# With a name of this length, the longest name of a function has 64 characters, Lambda's maximum.
STAGE_NAME_MAX = 32
_STAGE_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Names that a stage must not have, because its stack would have the name of a stack for something
# else.
_RESERVED = re.compile(r"account|(.+-)?(data|producers|pipelines|copies)")


def name_problem(stage: str) -> str | None:
    """Return the rule that the name *stage* breaks; None if the name is valid."""
    if not _STAGE_NAME.fullmatch(stage) or len(stage) > STAGE_NAME_MAX:
        return f"lower-case letters, digits and single hyphens, at most {STAGE_NAME_MAX}"
    if _RESERVED.fullmatch(stage):
        return "another name: this name is reserved for the names of other stacks"
    return None


class NoStage(TidingsError):
    """A stage is not visible with the caller's credentials; the message gives the reason."""


def stack_name(stage: str) -> str:
    """Return the name of the stack of functions and addresses; its outputs describe the stage."""
    return f"tidings-{stage}"


def data_stack_name(stage: str) -> str:
    """Return the name of the stack of the stage's tables, buckets and encryption key."""
    return f"{stack_name(stage)}-data"


def table_name(stage: str, table: str, suffix: str) -> str:
    """Return the name of a restored table of *stage*; AWS generates the names of other tables."""
    return f"{stack_name(stage)}-{table}-{suffix}"


def find(stage: str, cloudformation: Any) -> Deployed:
    """Return the outputs of the stage's stack, read with a CloudFormation client.

    Raises:
        NoStage: the stage does not exist, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, (CONTROL_OUTPUT, FEEDS_OUTPUT))
    return Deployed(outputs[CONTROL_OUTPUT], frozenset(outputs[FEEDS_OUTPUT].split(",")))


def addresses(stage: str, cloudformation: Any) -> Addresses:
    """Return the base URLs of the stage.

    Raises:
        NoStage: the stage does not exist, or it is older than this command.
    """
    return public_description(stage, cloudformation).addresses


def public_description(stage: str, cloudformation: Any) -> Exposed:
    """Return the public description of the stage.

    Raises:
        NoStage: the stage does not exist, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, _EXPOSED)
    return _parse_outputs(stage, outputs)


def find_stages(cloudformation: Any) -> list[Exposed]:
    """Return all stages that are visible with the client's credentials, in the order of names."""
    pages = cloudformation.get_paginator("describe_stacks").paginate()
    stacks = [
        (stack["StackName"].removeprefix(stack_name("")), _outputs_of(stack))
        for page in pages
        for stack in page["Stacks"]
        if stack["StackName"].startswith(stack_name(""))
    ]
    return [
        _parse_outputs(name, outputs)
        for name, outputs in sorted(stacks)
        if outputs.keys() >= _EXPOSED
    ]


def _parse_outputs(stage: str, outputs: Mapping[str, str]) -> Exposed:
    feeds = frozenset(outputs[FEEDS_OUTPUT].split(","))
    return Exposed(stage, _addresses(outputs), outputs[CONTROL_OUTPUT], feeds)


def _addresses(outputs: Mapping[str, str]) -> Addresses:
    """Return the stage's base URLs; with one address, the WebSocket path is a server's."""
    url = outputs.get(ONE_URL_OUTPUT)
    if url is None:
        return Addresses(*(outputs[name] for name in _URLS))
    return Addresses(url, url, f"{url.replace('https', 'wss', 1)}{SOCKETS_PATH}")


def settings_of(stage: str, cloudformation: Any) -> dict[str, str]:
    """Return the settings listed in `SETTING_OUTPUTS`, the archive, and the chained feeds.

    Raises:
        NoStage: the stage does not exist, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, SETTING_OUTPUTS)
    variables = {variable: outputs[name] for name, variable in SETTING_OUTPUTS.items()}
    variables["TIDINGS_SOURCES"] = outputs.get(SOURCES_OUTPUT, "")
    return variables | {"TIDINGS_ARCHIVE": outputs.get(ARCHIVE_OUTPUT, "")}


def syncs_of(stage: str, cloudformation: Any) -> Syncs:
    """Return the bucket and state machine of the stage's syncs.

    Raises:
        NoStage: the stage does not exist, or it is older than this command.
    """
    outputs = _outputs(stage, cloudformation, (SYNC_BUCKET_OUTPUT, SYNC_MACHINE_OUTPUT))
    return Syncs(outputs[SYNC_BUCKET_OUTPUT], outputs[SYNC_MACHINE_OUTPUT])


def output(stage: str, cloudformation: Any, name: str) -> str:
    """Return one output of the stage, by name.

    Raises:
        NoStage: the stage does not exist, or it is older than this command.
    """
    return _outputs(stage, cloudformation, (name,))[name]


def settings(stage: str, variables: Mapping[str, str]) -> Settings:
    """Return the settings of the stage's functions that bulk jobs need.

    The names of the tables begin with that of the stack unless *variables* has others. For a stage
    on AWS, *variables* is the result of `settings_of`. For `LOCAL_STAGE`, *variables* has the feeds
    and chained feeds.
    """
    prefix = f"{stack_name(stage)}-"
    names = {
        f"TIDINGS_{table.upper()}_TABLE": f"{prefix}{table}"
        for table in ("log", "state", "control", "connections")
    }
    known = {"TIDINGS_STAGE": stage, "TIDINGS_FUNCTION_PREFIX": prefix}
    return Settings.read(known | names | {"TIDINGS_FEEDS": DEFAULT_FEED} | dict(variables))


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


BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"  # the parameter with the version of CDK's bootstrap
_NO_STACK = "ValidationError"  # the code of several errors; a missing stack has no code of its own
_LOGS = (
    *("/aws/lambda/", "/aws/vendedlogs/apigateway/", "/aws/vendedlogs/states/"),
    "/aws/emr-serverless/",
)
_NO_TAGS = "NoSuchTagSet"
# The names, after the stage's, of resources that are not functions: state machines, APIs, and the
# application that a test creates.
_FIXED = ("sync", "lake", "http", "sockets", "reach")
# The rest of a name that CloudFormation generates (the stack's suffix, the resource, random
# characters), or of a restored table, which has no tags.
_GENERATED = re.compile(r"((data|producers|pipelines)-)?[^-]+(-[^-]*[0-9][^-]*)?")


# The Regions that have every resource of a stage (a test compares them with cfn-lint's data). Every
# other Region lacks a resource. For example, AWS GovCloud and China lack function URLs, which serve
# event streams.
REGIONS = (
    *("af-south-1", "ap-east-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3"),
    *("ap-south-1", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ca-central-1"),
    *("eu-central-1", "eu-north-1", "eu-south-1", "eu-west-1", "eu-west-2", "eu-west-3"),
    *("sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2"),
)
# The retentions in days that CloudWatch Logs accepts.
LOG_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The account's limit of concurrent invocations, and how many are reserved for functions."""

    quota: int
    reserved: int


class Account:
    """A reader of an account. *clients* creates a boto3 client for the name of a service.

    Each method raises botocore's ClientError if the credentials lack its permission.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def concurrency(self) -> Concurrency:
        limit = self._clients("lambda").get_account_settings()["AccountLimit"]
        quota = limit["ConcurrentExecutions"]
        return Concurrency(quota, quota - limit["UnreservedConcurrentExecutions"])

    def bootstrap_version(self) -> int | None:
        """Return the version of the CDK's bootstrap; None if the Region is not bootstrapped."""
        parameters = self._clients("ssm")
        try:
            return int(parameters.get_parameter(Name=BOOTSTRAP)["Parameter"]["Value"])
        except parameters.exceptions.ParameterNotFound:
            return None

    def stack_status(self, stack: str) -> str | None:
        """Return CloudFormation's status of the stack *stack*; None if the stack does not exist."""
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
        names = (each["FunctionName"] for page in pages for each in page["Functions"])
        return [name for name in names if is_fixed_name(stage, name)]

    def log_groups(self, stage: str) -> list[str]:
        logs = self._clients("logs")

        def tags(arn: str) -> dict[str, str]:
            tagged: dict[str, str] = logs.list_tags_for_resource(resourceArn=arn)["tags"]
            return tagged

        return [
            each["logGroupName"]
            for each in self._log_groups(stage)
            if is_of_stage(
                stage,
                tags(each["arn"].removesuffix(":*")),
                untagged=is_fixed_name(stage, each["logGroupName"].rpartition("/")[2]),
            )
        ]

    def machines(self, stage: str) -> list[str]:
        pages = self._clients("stepfunctions").get_paginator("list_state_machines").paginate()
        names = (each["name"] for page in pages for each in page["stateMachines"])
        return [name for name in names if is_fixed_name(stage, name)]

    def tables(self, stage: str) -> list[str]:
        tables = self._clients("dynamodb")

        def tags(name: str) -> dict[str, str]:
            arn = tables.describe_table(TableName=name)["Table"]["TableArn"]
            return _decode_tags(tables.list_tags_of_resource(ResourceArn=arn)["Tags"])

        pages = tables.get_paginator("list_tables").paginate()
        return _owned(stage, (name for page in pages for name in page["TableNames"]), tags)

    def buckets(self, stage: str) -> list[str]:
        from botocore.exceptions import ClientError

        objects = self._clients("s3")

        def tags(name: str) -> dict[str, str]:
            try:
                return _decode_tags(objects.get_bucket_tagging(Bucket=name)["TagSet"])
            except ClientError as error:
                if error.response["Error"]["Code"] == _NO_TAGS:
                    return {}
                raise

        return _owned(stage, (each["Name"] for each in objects.list_buckets()["Buckets"]), tags)

    def gateway_role(self) -> str | None:
        """Return the role that API Gateway logs with in the account and Region; None if unset."""
        arn: str | None = self._clients("apigateway").get_account().get("cloudwatchRoleArn")
        return arn or None

    def _log_groups(self, stage: str) -> Iterator[Mapping[str, str]]:
        """Yield the log groups of *stage*, and of other stages with names that begin with it."""
        pages = self._clients("logs").get_paginator("describe_log_groups")
        for path in _LOGS:
            for page in pages.paginate(logGroupNamePrefix=f"{path}{stack_name(stage)}-"):
                yield from page["logGroups"]


def is_of_stage(stage: str, tags: Mapping[str, str], *, untagged: bool) -> bool:
    """Return True if the tag of a resource names *stage*; *untagged* if it has no such tag."""
    return tags[STAGE_TAG] == stage if STAGE_TAG in tags else untagged


def is_fixed_name(stage: str, name: str) -> bool:
    """Return True if *name* names a function, state machine, API or application of *stage*.

    The name alone decides, because Lambda creates a deleted log group again without tags.
    """
    from tidings.aws.config.deployment import FUNCTIONS

    names = (*(each.name for each in FUNCTIONS), *_FIXED)
    return name in {f"{stack_name(stage)}-{each}" for each in names}


def _owned(stage: str, names: Iterable[str], tags: Callable[[str], dict[str, str]]) -> list[str]:
    """Return those of *names* that are of *stage* by the tags of the resource, or by _GENERATED."""
    prefix = f"{stack_name(stage)}-"
    return sorted(
        name
        for name in names
        if name.startswith(prefix)  # only to ask for the tags of few resources
        and is_of_stage(
            stage, tags(name), untagged=bool(_GENERATED.fullmatch(name.removeprefix(prefix)))
        )
    )


def _decode_tags(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in tags}
