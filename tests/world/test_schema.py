"""Requests made by schemathesis from the served OpenAPI document, right and wrong ones.

Each operation has a feed of its own, so that wrong credentials, deleted objects and feeds that
yielded concern only this operation. In CI the requests are the same each time; `make test-schema`
makes others, and more of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.hosts import make_key
from tidings.http.openapi import document
from tidings.server.running import Server

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "0"))
PATIENCE_S = 60.0
ENDLESS = ("text/event-stream", "application/x-ndjson")
CONSUMER, HOOK = "search", "hook"
PATH_OF_FEED = "/feeds/{feed}"
# The statuses with which a wrong request is refused.
REFUSALS = [
    str(status) for status in (400, 401, 404, 405, 406, 409, 410, 412, 413, 415, 421, 422, 501)
]
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]

schemathesis.serializer.alias("application/x-ndjson", "text/plain")  # texts of any kind, as lines


@dataclass(frozen=True)
class Tried:
    """A server, the feeds of the operations, and the credential of the requests."""

    server: Server
    headers: dict[str, str]


def described() -> dict[str, Any]:
    """Return the document, with values that requests to a test server can have."""
    # `format: int64` is for generators: a server accepts larger integers, too.
    text = json.dumps(document([])).replace('"format": "int64"', '"title": "int64"')
    tried: dict[str, Any] = json.loads(text)
    schemas = tried["components"]["schemas"]
    for parameter in tried["components"]["parameters"].values():
        if parameter.get("allowEmptyValue"):
            parameter["schema"] = {"anyOf": [parameter["schema"], {"const": ""}]}
    # No request of these servers may leave the machine; they call no private addresses either.
    uri = {"type": "string", "pattern": "^https?://127[.]0[.]0[.]1/[a-z]{0,5}$"}
    schemas["WebhookRequest"]["properties"]["url"] = uri
    hook = {"type": "object", "properties": {"uri": uri}, "required": ["uri"]}
    schemas["ChangesConfiguration"]["properties"]["webHooks"] = {
        "type": ["array", "null"],
        "items": hook,
    }
    return tried


def loaded(
    modes: list[GenerationMode], phases: list[str], examples: int
) -> schemathesis.BaseSchema:
    schema = schemathesis.openapi.from_dict(described())
    config = schema.config
    config.generation.update(
        modes=modes,
        max_examples=EXAMPLES or examples,
        deterministic=not EXAMPLES,
        with_security_parameters=False,
    )
    config.phases.update(phases=phases)
    config.checks.negative_data_rejection.expected_statuses = REFUSALS
    return schema


BOTH = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
SCHEMA = loaded(BOTH, ["examples", "coverage", "fuzzing"], 4)
WITH_KEYS = loaded([GenerationMode.POSITIVE], ["examples", "fuzzing"], 1)
LABELS = [
    f"{method.upper()} {path}"
    for path, methods in described()["paths"].items()
    for method in methods
]
FEEDS = {label: f"s{number:03}" for number, label in enumerate(LABELS)}


@pytest.fixture(scope="module")
def open_server() -> Iterator[Tried]:
    """Start a server that needs no credential."""
    with _server() as server:
        yield _filled(server, {})


@pytest.fixture(scope="module")
def closed_server() -> Iterator[Tried]:
    """Start a server that needs a key."""
    roles = [f"--role={role}" for role in ("read", "ingest", "consume", "erase", "admin")]
    with _server() as server:
        key = make_key(server, "--host", *roles)
        yield _filled(server, {"Authorization": f"Bearer {key}"})


def _server() -> Server:
    return Server("--feeds", ",".join(["main", *FEEDS.values()]))


def _filled(server: Server, headers: dict[str, str]) -> Tried:
    """Return the server after each feed got a few objects."""
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
        for feed in FEEDS.values():
            _fill(client, feed)
    return Tried(server, headers)


def _fill(client: httpx.Client, feed: str) -> None:
    at = f"feeds/{feed}"
    operation = {"event": "insert", "type": "order", "id": "o-1", "parents": ["p"], "data": 1}
    hook = {"url": "https://127.0.0.1/", "from": "oldest"}
    for path, method, body in (
        (f"{at}/ops", "POST", [operation, {**operation, "id": "o-2"}]),
        (f"{at}/consumers/{CONSUMER}", "PUT", {}),
        (f"{at}/hooks/{HOOK}", "PUT", hook),
    ):
        client.request(method, path, json=body).raise_for_status()


def send(case: schemathesis.Case[Any], tried: Tried) -> requests.Response:
    """Return the answer; of one without an end, only the head."""
    if isinstance(case.query, dict):
        case.query.pop("block", None)  # no request waits here
    given = case.path_parameters or {}
    is_valid = case.meta is None or not case.meta.is_negative_at(ParameterLocation.PATH)
    if is_valid and "feed" in given and case.operation.path != PATH_OF_FEED:
        given["feed"] = FEEDS[case.operation.label]
        if "name" in given:
            given["name"] = HOOK if "/hooks/" in case.operation.path else CONSUMER
    sent = case.as_transport_kwargs(base_url=tried.server.url.rstrip("/"), headers=tried.headers)
    answer = requests.request(**sent, stream=True, timeout=PATIENCE_S, allow_redirects=False)
    if answer.headers.get("content-type", "").startswith(ENDLESS):
        answer._content, answer._content_consumed = b"", True
        answer.close()
    return answer


def expected_faults(case: schemathesis.Case[Any]) -> set[int]:
    """Return the statuses above 500 that the operation has on purpose."""
    chosen = {int(status) for status in case.operation.definition.raw["responses"]}
    return chosen & {501, 502} | ({503} if case.operation.path == "/health" else set())


@SCHEMA.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_answers_are_those_that_the_document_describes(
    case: schemathesis.Case[Any], open_server: Tried
) -> None:
    answer = send(case, open_server)
    meant = answer.status_code in expected_faults(case)
    case.validate_response(answer, checks=[*CHECKS, *([] if meant else [not_a_server_error])])


@WITH_KEYS.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_an_operation_needs_the_credentials_that_the_document_names(
    case: schemathesis.Case[Any], closed_server: Tried
) -> None:
    """It works with a key, and neither without nor with a wrong one."""
    answer = send(case, closed_server)
    meant = answer.status_code in expected_faults(case)
    checks = [*CHECKS, ignored_auth, *([] if meant else [not_a_server_error])]
    assert answer.status_code not in (401, 403), answer.text
    case.validate_response(answer, checks=checks, headers=closed_server.headers)
