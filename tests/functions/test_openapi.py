"""`GET /openapi.json`: the description of the routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from functions.report.handler import handle
from tests.functions.cloud import Cloud, event
from tidings.core.errors import Rejected
from tidings.http.openapi import (
    HEADERS,
    SCHEMAS,
    TAG_SUMMARIES,
    described_paths,
    document,
    rejections,
)
from tidings.http.routes import HTTP_ROUTES
from tidings.http.schemas import DIALECT
from tidings.http.wire import DEFAULT_PATH, EXAMPLE_CURSOR

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
