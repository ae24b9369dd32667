"""Requests made from the served description of the routes, right and wrong ones: no server error.

Each operation gets some cases here; FUZZ_EXAMPLES asks for more (`make fuzz`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings

from tests.twin import Twin
from tidings.http.openapi import document

pytestmark = pytest.mark.java

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2"))
PATIENCE_S = 180.0  # for one answer: machines that run tests are busy
STREAM = "text/event-stream"

# Deliberate faults, by status: the answer contains one of these texts.
MEANT = {
    501: ("members of a managed service are not added", "no_webhooks"),
    502: ("WebHook",),  # a configuration may name one that is not there
    503: ("marked down",),  # `PUT /health` did so
}

schemathesis.serializer.alias("application/x-ndjson", "text/plain")  # texts of any kind, as lines
TRIED = document(["main"])
TRIED["components"]["parameters"]["path.feed"]["schema"] = {"type": "string", "enum": ["main"]}
SCHEMA = schemathesis.openapi.from_dict(TRIED)
SCHEMA.config.phases.update(phases=["fuzzing"])


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with Twin("--leave", "--resource", "vm:nic,alias=/vms") as running:
        yield running


def ask(case: Any, url: str) -> tuple[int, str]:
    """Status and text of the answer; of a stream, which has no end, its status alone."""
    if isinstance(case.query, dict):
        case.query.pop("block", None)  # no request waits here
    sent = case.as_transport_kwargs(base_url=url)
    with requests.request(**sent, stream=True, timeout=PATIENCE_S) as answer:
        if answer.headers.get("content-type", "").startswith(STREAM):
            return answer.status_code, ""
        return answer.status_code, answer.text


def is_fault(status: int, text: str) -> bool:
    return status >= 500 and not any(each in text for each in MEANT.get(status, ()))


def test_what_is_served_is_what_is_tried(twin: Twin) -> None:
    """The description of the cases below is the twin's own."""
    served = httpx.get(f"{twin.url}openapi.json", timeout=PATIENCE_S).json()

    assert served == document(["main"])


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
def test_no_request_fails_the_server(case: Any, twin: Twin) -> None:
    """Whatever is asked is answered, or refused with a reason."""
    status, text = ask(case, twin.url.rstrip("/"))
    if status == 503 and '"unavailable"' in text:  # the store was busy; a client asks again
        status, text = ask(case, twin.url.rstrip("/"))

    assert not is_fault(status, text), f"{status} {text[:500]}\n{case.as_curl_command()}"


def test_a_fault_is_seen() -> None:
    """A 500 is one whatever it says, and so is a fault that says something else."""
    assert is_fault(500, "marked down") and is_fault(503, '{"error":{"code":"unavailable"}}')
    assert not is_fault(503, "marked down") and not is_fault(404, "")
