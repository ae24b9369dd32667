"""CloudFormation's answers to DescribeStacks and GetTemplate for one stack, as AWS spells them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import boto3
import pytest
from moto import mock_aws

from tests.contract.answering import HttpServer, ReceivedRequest, Reply
from tests.contract.stores import create
from tidings.aws.config.deployment import TABLES

_NAMESPACE = "http://cloudformation.amazonaws.com/doc/2010-05-15/"


@contextmanager
def describing(name: str, outputs: Mapping[str, str], *others: str) -> Iterator[str]:
    """Serve an endpoint that knows the stack *name*, *others* without outputs, and no more."""

    def respond(request: ReceivedRequest) -> Reply:
        asked = parse_qs(request.body.decode())
        (wanted,) = asked.get("StackName", [name])  # without one, all there are
        if asked["Action"] == ["GetTemplate"]:
            return Reply(_template().encode())
        if wanted in (name, *others):
            return Reply(_found(wanted, outputs if wanted == name else {}).encode())
        return Reply(_missing(wanted).encode(), 400)

    with HttpServer(respond) as server:
        yield server.url


@contextmanager
def stage(
    monkeypatch: pytest.MonkeyPatch,
    outputs: Mapping[str, str],
    name: str = "tidings-dev",
    *others: str,
) -> Iterator[Any]:
    """Set up an account with the stack *name*, *others* and no table yet; yield its client of
    DynamoDB.
    """
    for secret in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(secret, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with mock_aws(), describing(name, outputs, *others) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", url)
        yield boto3.client("dynamodb")


@contextmanager
def deployed(
    monkeypatch: pytest.MonkeyPatch, outputs: Mapping[str, str], *copies: str
) -> Iterator[Any]:
    """Create the stage `dev` with all its tables, and for each table copies with the suffixes
    *copies*.
    """
    with stage(monkeypatch, outputs) as client:
        for table in TABLES:
            create(client, table)
            for copy in copies:
                create(client, replace(table, name=f"tidings-dev-{table.name}-{copy}"))
        yield client


def _template() -> str:
    """Return the template of a stack of data that protects its tables."""
    resources = {
        f"Tables{each.name.capitalize()}1A2B": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "DeletionProtectionEnabled": True,
                "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
                "TimeToLiveSpecification": {"AttributeName": each.ttl_attribute, "Enabled": True},
                "Tags": [{"Key": "tidings:stage", "Value": "dev"}],
            }
            | ({"StreamSpecification": {"StreamViewType": "KEYS_ONLY"}} if each.stream else {}),
        }
        for each in TABLES
    }
    body = escape(json.dumps({"Resources": resources}))
    return (
        f'<GetTemplateResponse xmlns="{_NAMESPACE}"><GetTemplateResult>'
        f"<TemplateBody>{body}</TemplateBody></GetTemplateResult></GetTemplateResponse>"
    )


def _found(name: str, outputs: Mapping[str, str]) -> str:
    members = "".join(
        f"<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>"
        for key, value in outputs.items()
    )
    return (
        f'<DescribeStacksResponse xmlns="{_NAMESPACE}"><DescribeStacksResult><Stacks><member>'
        f"<StackName>{name}</StackName><CreationTime>2026-01-01T00:00:00Z</CreationTime>"
        f"<StackStatus>UPDATE_COMPLETE</StackStatus><Outputs>{members}</Outputs>"
        "</member></Stacks></DescribeStacksResult></DescribeStacksResponse>"
    )


def _missing(name: str) -> str:
    return (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>Sender</Type>'
        "<Code>ValidationError</Code>"
        f"<Message>Stack with id {name} does not exist</Message></Error></ErrorResponse>"
    )
