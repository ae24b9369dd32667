"""
Least privilege, for all roles of a stage together.

`tests/iam/test_roles.py` runs every function under its own role: each call must be allowed, and
each privilege must be used.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tidings.aws.config import deployment

from tests.infra.templates import Resource, Template, as_list, text

pytestmark = pytest.mark.node

# Every grant with a `*` in its resource, and why it has nothing narrower.
WILDCARDS = {
    "/live/POST/@connections/*": "API Gateway makes up a connection's id when a client connects",
    "/live/DELETE/@connections/*": "as above",
    "/stream/*": "ListStreams is authorised against all streams of the one table",
    "/plans/*": "a sync names the parts of its plan when it makes them",
    "/approvals/*": "one object for each sync that waits, by its id",
    "/dumps/*": "a dump is named by who uploads it",
    "/uploads/*": "likewise",
    "/exports/*": "DynamoDB names what it exports",
    "/logs/*": "EMR Serverless names its logs by job",
    "/archive/*": "a part of the archive is named by the pages that it holds",
    "/tables/*": "Iceberg names the files of a table",
    "_lake/*": "a feed's tables in the one database are named when it is first archived",
    "/jobruns/*": "a job run gets its id when it is started",
    "/export/*": "an export of the one table gets its id when it is started",
    ":alarm:*": "the alarm that ends a canary has a name made up with it",
    "-sync:*": "an execution of the one state machine gets its id when it is started",
    "-sync/Parts:*": "likewise, of its map over parts",
    "/aws/lambda/*": "Lambda names what it writes to the bucket by mapping, shard and time",
}

_LOGS = ("logs:PutResourcePolicy", "logs:DescribeResourcePolicies", "logs:DescribeLogGroups")


def test_no_role_may_touch_everything(template: Template) -> None:
    """A resource with a wildcard is one of those explained above, below something we own."""
    for statement in _all_statements(template):
        if all("LogDeliver" in each or each in _LOGS for each in as_list(statement["Action"])):
            continue  # CloudWatch Logs knows no resource for them
        for resource in map(text, as_list(statement["Resource"])):
            explained = resource.endswith(tuple(WILDCARDS)) and resource.startswith(("<", "arn:"))

            assert "*" not in resource or (explained and resource.count("*") == 1)


def test_no_role_may_do_everything(template: Template) -> None:
    """Actions are named one by one."""
    for statement in _all_statements(template):
        assert not any("*" in action for action in as_list(statement["Action"]))


def test_functions_have_no_managed_policies(template: Template) -> None:
    """AWS's own policies allow more than one function's work."""
    for function in deployment.FUNCTIONS:
        role = template.resources("AWS::IAM::Role")[template.role_of(function.name)]

        assert "ManagedPolicyArns" not in role


def test_function_writes_its_own_logs_only(template: Template) -> None:
    """One log group a role."""
    for function in deployment.FUNCTIONS:
        group = template.function(function.name)[1]["LoggingConfig"]["LogGroup"]["Ref"]

        assert {f"<{group}.Arn>"} == {r for r, _ in _may(template, function, "logs:")}


def test_only_our_apis_and_the_stream_url_may_invoke(template: Template) -> None:
    """Permissions name an API as their source; the function URL takes everybody."""
    streams = {
        template.function(each.name)[0] if each.endless else template.live(each.name)
        for each in deployment.FUNCTIONS
        if each.streams
    }
    for permission in template.resources("AWS::Lambda::Permission").values():
        if permission["Principal"] == "apigateway.amazonaws.com":
            assert ":execute-api:" in text(permission["SourceArn"])
        else:
            assert permission["Principal"] == "*"
            assert text(permission["FunctionName"]).strip("<>").removesuffix(".Arn") in streams


def test_endpoints_ask_for_no_signature(template: Template) -> None:
    """Clients that know HTTP Basic reach the functions, which ask for the password."""
    routes = template.resources("AWS::ApiGatewayV2::Route").values()

    assert {r.get("AuthorizationType", "NONE") for r in routes} == {"NONE"}


def test_no_stage_is_open(template: Template) -> None:
    """A feed without a password is closed wherever it is deployed."""
    for function in template.resources("AWS::Lambda::Function").values():
        assert function["Environment"]["Variables"]["TIDINGS_OPEN"] == "false"


def _may(template: Template, function: deployment.Function, service: str) -> set[tuple[str, str]]:
    return {
        (text(resource), action)
        for statement in template.statements(template.role_of(function.name))
        for resource in as_list(statement["Resource"])
        for action in as_list(statement["Action"])
        if action.startswith(service)
    }


def _all_statements(template: Template) -> Iterator[Resource]:
    for policy in template.resources("AWS::IAM::Policy").values():
        yield from policy["PolicyDocument"]["Statement"]
