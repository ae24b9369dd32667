"""The documents /openapi.json and /asyncapi.json, and the declared fields that they describe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from functions.report.handler import handle
from tests.functions.cloud import Cloud, event
from tidings.core.errors import Rejected
from tidings.core.websocket.session import Act
from tidings.http.asyncapi import document as asyncapi_document
from tidings.http.json_schema import declared_types
from tidings.http.openapi import (
    HEADERS,
    SCHEMAS,
    TAG_SUMMARIES,
    described_paths,
    document,
    rejections,
)
from tidings.http.routes import DECLARED, HTTP_ROUTES
from tidings.http.schemas import DIALECT
from tidings.http.wire import DEFAULT_PATH, EXAMPLE_CURSOR, Fields, Given

PROTOCOL = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"
PATHS = [*described_paths()]
# Errors that no described route returns, with the reason.
NOT_DESCRIBED = {
    "invalid_message": "a message of a WebSocket",
    "repeated_header": "of a server only: a gateway joins repeated headers",
    "upgrade_required": "of a server only: the path of a WebSocket (8.11)",
    "invalid_registration": "a message of a WebSocket",
    "out_of_turn": "a message of a WebSocket",
    "key_ended": "sent on a WebSocket, or ends a response that has begun",
    "unknown_action": "the document has a path for each action",
    "wrong_method": "the document has the methods of each path",
    "wrong_user": "the paths of section 12 answer 401 without a body",
    "no_streams": "section 21 is not described",
    "invalid_stream": "section 21 is not described",
    "not_offered": "section 21 is not described",
    "unknown_stream": "section 21 is not described",
    "offset_gone": "section 21 is not described",
    "stream_conflict": "section 21 is not described",
    "stream_closed": "section 21 is not described",
    "stale_epoch": "section 21 is not described",
    "sequence_gap": "section 21 is not described",
}


@pytest.fixture
def served(cloud: Cloud) -> dict[str, Any]:
    answer = handle(event("http_get_status", routeKey="GET /openapi.json"), None)
    assert answer["statusCode"] == 200
    document: dict[str, Any] = json.loads(answer["body"])
    return document


def operations(served: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in served["paths"].values():
        yield from methods.values()


def test_every_route_is_in_it_and_no_other(served: dict[str, Any]) -> None:
    """A new route must be described; a route with an action has a path for each action."""
    described_routes = {
        (m.upper(), path) for path, methods in served["paths"].items() for m in methods
    }

    assert described_routes == {(each.route.method, each.path) for each in PATHS}
    served_routes = {r for each in PATHS for r in each.route.http_routes("")}
    assert {each.key for each in served_routes} | {DEFAULT_PATH} == {r.key for r in HTTP_ROUTES}


def test_every_route_has_its_rule() -> None:
    """A section of the protocol or a rule in it, which the suite then asks for a case."""
    rules = set(re.findall(r"^(?:## )?(\d+(?:\.\d+)?)[. ]", PROTOCOL.read_text(), re.MULTILINE))

    assert {each.route.section for each in PATHS} <= rules


def test_every_description_is_used() -> None:
    """No word of a route that is gone."""
    assert {name for each in PATHS for name in each.route.headers} == {*HEADERS}


def test_a_route_names_the_credentials_and_roles_that_it_needs(served: dict[str, Any]) -> None:
    """The same as in the routes' own table, and of actions in the table of actions."""
    for each in PATHS:
        security = served["paths"][each.path][each.route.method.lower()]["security"]
        role = each.route.need.role
        assert security == [] if role is None else {"key": [role.value]} in security, each


def test_names_are_unique_and_references_lead_somewhere(served: dict[str, Any]) -> None:
    """Generators make a function of each name and a type of each schema."""
    names = [each["operationId"] for each in operations(served)]
    text = json.dumps(served)
    references = set(re.findall(r'"#/components/([^"]+)"', text))
    components = {f"{kind}/{name}" for kind, all_ in served["components"].items() for name in all_}

    assert len({*names}) == len(names)
    assert all(re.fullmatch("[a-z]+(?:[A-Z][a-z]+)+", name) for name in names), names
    assert references == {each for each in components if not each.startswith("securitySchemes")}


def test_every_operation_is_named_tagged_and_has_schemas(served: dict[str, Any]) -> None:
    """Every body has a schema, every request an example."""
    assert {tag["name"] for tag in served["tags"]} == {*TAG_SUMMARIES}
    for operation in operations(served):
        assert {*operation["tags"]} <= {*TAG_SUMMARIES}
        contents = [each.get("content", {}) for each in operation["responses"].values()]
        body = operation.get("requestBody", {}).get("content", {})
        for content in (*contents, body):
            assert all(media["schema"] for media in content.values()), operation["operationId"]
        assert all("example" in media for media in body.values()), operation["operationId"]


def test_examples_match_their_schemas(served: dict[str, Any]) -> None:
    root = {"$schema": DIALECT, "components": served["components"]}

    def check(schema: dict[str, Any], example: Any) -> None:
        validator = jsonschema_rs.Draft202012Validator({**root, **schema}, validate_formats=True)
        validator.validate(example)

    for name, schema in served["components"]["schemas"].items():
        assert schema["examples"], name
        for example in schema["examples"]:
            check({"$ref": f"#/components/schemas/{name}"}, example)
    for example in served["components"]["examples"].values():
        check({"$ref": "#/components/schemas/Error"}, example["value"])
    for operation in operations(served):
        for media in operation.get("requestBody", {}).get("content", {}).values():
            check(media["schema"], media["example"])
    with pytest.raises(jsonschema_rs.ValidationError):
        check(
            {"$ref": "#/components/schemas/FeedEvent"}, {"id": EXAMPLE_CURSOR, "event": "unknown"}
        )


def test_every_error_is_described() -> None:
    """An error of the code is one of a route, or has a reason why it is not."""
    described = {code for each in PATHS for code, _, _ in rejections(each)}
    known = {error.code for error in _all(Rejected) if error.__module__.startswith("tidings.")}

    assert known - described == {*NOT_DESCRIBED} & known


def _all(error: type[Rejected]) -> Iterator[type[Rejected]]:
    for each in error.__subclasses__():
        yield each
        yield from _all(each)


def test_feeds_are_those_that_there_are(served: dict[str, Any]) -> None:
    """So that a page made from it offers them; a client may name others, which it creates."""
    schema = served["components"]["parameters"]["path.feed"]["schema"]

    assert schema["examples"] == ["main"]
    assert re.fullmatch(schema["pattern"], "orders")


def test_addresses_begin_with_the_prefix() -> None:
    assert document(["main"], "/prod")["servers"] == [{"url": "/prod"}]
    assert SCHEMAS["FeedEvent"]["additionalProperties"] is False


@pytest.fixture
def described(cloud: Cloud) -> dict[str, Any]:
    answer = handle(event("http_get_status", routeKey="GET /asyncapi.json"), None)
    assert answer["statusCode"] == 200
    asyncapi_document: dict[str, Any] = json.loads(answer["body"])
    return asyncapi_document


def test_a_stage_serves_it(described: dict[str, Any]) -> None:
    assert described["asyncapi"] == "3.0.0"
    assert described["servers"]["http"]["host"]


def test_references_lead_somewhere(described: dict[str, Any]) -> None:
    for reference in set(re.findall(r'"#/([^"]+)"', json.dumps(described))):
        node: Any = described
        for name in reference.split("/"):
            node = node[name]


def test_every_action_of_a_client_is_in_it(described: dict[str, Any]) -> None:
    payloads = described["components"]["schemas"].values()
    actions = {
        payload["properties"]["action"]["const"]
        for payload in payloads
        if "action" in payload.get("properties", {})
    }

    assert actions == {act.value for act in Act}


def test_every_message_has_an_operation(described: dict[str, Any]) -> None:
    text = json.dumps(described["operations"])

    for name, channel in described["channels"].items():
        for message in channel["messages"]:
            assert f'"#/channels/{name}/messages/{message}"' in text


def test_schemas_are_those_of_openapi(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    shared = {name: schema for name, schema in schemas.items() if name in SCHEMAS}

    assert {"FeedEvent", "CloudEvent", "DebeziumEvent", "FeedObject", "Error"} <= {*shared}
    assert all(schema == SCHEMAS[name] for name, schema in shared.items())


def test_examples_of_asyncapi_match_their_schemas(described: dict[str, Any]) -> None:
    root = {"$schema": DIALECT, "components": described["components"]}
    for name, schema in described["components"]["schemas"].items():
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
    servers = asyncapi_document(base_url)["servers"]

    assert servers["http"].items() >= http.items()
    assert servers["socket"].items() >= socket.items()


RECORDED = Path(__file__).parent / "schemas.txt"
SECRET = ("digest", "hash", "password", "secret", "token")
# Each is sent once, to the client that creates it, or is public.
SENT = {
    ("Webhook", "secret"),
    ("Webhook", "secrets"),  # their number
    ("WebhookSecret", "secret"),
    ("RelayPasswordSet", "password"),  # `set` or `none`
}


def _form(schema: Any) -> str:
    """Return a schema in one line, without what is only for readers."""
    if not isinstance(schema, dict):
        return str(schema)
    shown = {key: schema[key] for key in sorted(schema.keys() - {"examples", "description"})}
    if shown.keys() == {"type"}:
        return str(shown["type"])
    if shown.keys() == {"$ref"}:
        return str(shown["$ref"]).rpartition("/")[2]
    return " ".join(f"{key}={_value(key, value)}" for key, value in shown.items())


def _value(key: str, value: Any) -> str:
    if key == "properties":
        return "{" + ", ".join(f"{name}: {_form(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_form(each) for each in value) + "]"
    return f"({_form(value)})" if isinstance(value, dict) else str(value)


def test_no_schema_changes_by_accident() -> None:
    """A client stops to work if a field is renamed; `RECORD=1` writes the file again."""
    text = "".join(f"{name}: {_form(schema)}\n" for name, schema in sorted(SCHEMAS.items()))
    if "RECORD" in os.environ:
        RECORDED.write_text(text)
    assert RECORDED.read_text() == text


def _responses() -> list[type[Fields]]:
    routes = [each for kind in DECLARED for each in kind.declared.values()]
    hints = [each.hint("return") for each in routes]
    hints += [hint for each in routes for _, hint in each.answers or ()]
    found = {each for hint in hints for each in declared_types(hint) if isinstance(each, type)}
    return sorted(found, key=lambda each: each.schema_name)


@pytest.mark.parametrize("response", _responses(), ids=lambda each: each.schema_name)
def test_no_response_has_a_field_for_a_secret(response: type[Fields]) -> None:
    names = {*_names(SCHEMAS[response.schema_name])}
    found = {(response.schema_name, name) for name in names if any(s in name for s in SECRET)}
    assert found <= SENT and not issubclass(response, Given)


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        for each in schema.values():
            yield from _names(each)
