"""`GET /asyncapi.json`: the description of streams, WebSockets and webhooks."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from functions.report.handler import handle
from tests.functions.cloud import Cloud, event
from tidings.core.websocket.session import Act
from tidings.http.asyncapi import document
from tidings.http.openapi import SCHEMAS
from tidings.http.schemas import DIALECT


@pytest.fixture
def served(cloud: Cloud) -> dict[str, Any]:
    answer = handle(event("http_get_status", routeKey="GET /asyncapi.json"), None)
    assert answer["statusCode"] == 200
    document: dict[str, Any] = json.loads(answer["body"])
    return document


def test_a_stage_serves_it(served: dict[str, Any]) -> None:
    assert served["asyncapi"] == "3.0.0"
    assert served["servers"]["http"]["host"]


def test_references_lead_somewhere(served: dict[str, Any]) -> None:
    for reference in set(re.findall(r'"#/([^"]+)"', json.dumps(served))):
        node: Any = served
        for name in reference.split("/"):
            node = node[name]


def test_every_action_of_a_client_is_in_it(served: dict[str, Any]) -> None:
    payloads = served["components"]["schemas"].values()
    actions = {
        payload["properties"]["action"]["const"]
        for payload in payloads
        if "action" in payload.get("properties", {})
    }

    assert actions == {act.value for act in Act}


def test_every_message_has_an_operation(served: dict[str, Any]) -> None:
    text = json.dumps(served["operations"])

    for name, channel in served["channels"].items():
        for message in channel["messages"]:
            assert f'"#/channels/{name}/messages/{message}"' in text


def test_schemas_are_those_of_openapi(served: dict[str, Any]) -> None:
    schemas = served["components"]["schemas"]
    shared = {name: schema for name, schema in schemas.items() if name in SCHEMAS}

    assert {"FeedEvent", "CloudEvent", "DebeziumEvent", "FeedObject", "Error"} <= {*shared}
    assert all(schema == SCHEMAS[name] for name, schema in shared.items())


def test_examples_match_their_schemas(served: dict[str, Any]) -> None:
    root = {"$schema": DIALECT, "components": served["components"]}
    for name, schema in served["components"]["schemas"].items():
        reference = {"$ref": f"#/components/schemas/{name}"}
        validator = jsonschema_rs.Draft202012Validator({**root, **reference})
        assert schema["examples"], name
        for example in schema["examples"]:
            validator.validate(example)


@pytest.mark.parametrize(
    ("base_url", "http", "socket"),
    [
        (
            "http://127.0.0.1:8042",
            {"host": "127.0.0.1:8042", "protocol": "http", "pathname": "/"},
            {"host": "127.0.0.1:8042", "protocol": "ws", "pathname": "/ws"},
        ),
        (
            "https://feed.example.com/prod",
            {"host": "feed.example.com", "protocol": "https", "pathname": "/prod"},
            {"host": "feed.example.com", "protocol": "wss", "pathname": "/prod/ws"},
        ),
    ],
)
def test_servers_have_the_address_of_the_request(
    base_url: str, http: dict[str, str], socket: dict[str, str]
) -> None:
    servers = document(base_url)["servers"]

    assert servers["http"].items() >= http.items()
    assert servers["socket"].items() >= socket.items()
