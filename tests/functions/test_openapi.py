"""`GET /openapi.json`: the description of the routes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from functions.report.handler import handle
from tests.functions.cloud import Cloud, event
from tidings.http.openapi import DOCS, PARAMETERS, doc_of
from tidings.http.routes import DEFAULT_PATH, HTTP_ROUTES

PROTOCOL = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"
ROUTES = [route for route in HTTP_ROUTES if route.path != DEFAULT_PATH]


@pytest.fixture
def served(cloud: Cloud) -> dict[str, Any]:
    answer = handle(event("http_get_status", routeKey="GET /openapi.json"), None)
    assert answer["statusCode"] == 200
    document: dict[str, Any] = json.loads(answer["body"])
    return document


def test_every_route_is_in_it_and_no_other(served: dict[str, Any]) -> None:
    """A new route must be described."""
    described_routes = {
        (m.upper(), path) for path, methods in served["paths"].items() for m in methods
    }

    assert described_routes == {(route.method, route.path) for route in ROUTES}
    described = [doc_of(route) for route in ROUTES]
    assert all(doc in described for doc in DOCS.values())


def test_every_route_has_its_rule() -> None:
    """A section of the protocol or a rule in it, which the suite then asks for a case."""
    rules = set(re.findall(r"^(?:## )?(\d+(?:\.\d+)?)[. ]", PROTOCOL.read_text(), re.MULTILINE))

    assert {doc.section for doc in DOCS.values()} <= rules


def test_every_description_is_used() -> None:
    """No word of a route that is gone."""
    used = {name for doc in DOCS.values() for name in (*doc.query, *doc.headers)}

    assert used == {*PARAMETERS}


def test_what_takes_a_password_says_so(served: dict[str, Any]) -> None:
    """The same as in the routes' own table."""
    for route in ROUTES:
        operation = served["paths"][route.path][route.method.lower()]
        assert ("security" in operation) == (route.need.role is not None), route


def test_names_are_unique_and_references_lead_somewhere(served: dict[str, Any]) -> None:
    """Generators make a function of each name and a type of each schema."""
    operations = [each for methods in served["paths"].values() for each in methods.values()]
    names = [each["operationId"] for each in operations]
    text = json.dumps(served)

    assert len({*names}) == len(names)
    for name in served["components"]["schemas"]:
        assert text.count(f'"#/components/schemas/{name}"')
    assert text.count("#/components/schemas/") == sum(
        text.count(f'"#/components/schemas/{name}"') for name in served["components"]["schemas"]
    )


def test_feeds_are_those_that_there_are(served: dict[str, Any]) -> None:
    """So that a page made from it offers them."""
    (feed,) = served["paths"]["/feeds/{feed}/ops"]["get"]["parameters"][:1]

    assert feed["schema"] == {"type": "string", "enum": ["main"]}
