"""A request that a page of another origin causes in a browser changes nothing, on any route."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from functions.ingest.handler import handle as ingest
from tests.functions.authorization import RouteRequest, requests
from tests.functions.cloud import Cloud, event, restart
from tests.functions.test_authorization import Client
from tidings.aws.stage import stage
from tidings.core.auth.origins import READING

EVIL = "https://evil.example"
FOREIGN: Mapping[str, Mapping[str, str]] = {
    "origin": {"origin": EVIL},
    "site": {"sec-fetch-site": "cross-site"},
    "form": {"origin": EVIL, "content-type": "application/x-www-form-urlencoded"},
    "rebound": {"origin": "null"},
}


def changing() -> list[RouteRequest]:
    return [each for each in requests() if each.method not in READING]


def statuses(client: Client) -> dict[str, int]:
    return {each.name: client.status(each) for each in changing()}


def test_every_route_that_changes_something_refuses_it(cloud: Cloud) -> None:
    """Also if the feed is open, and before a password is requested."""
    for how in FOREIGN.values():
        found = statuses(Client("", bearer=False, more=how))
        assert found == dict.fromkeys(found, 403)
        assert len(found) > 20
    assert stage().stores.log.head("main") == 0


def test_machines_and_pages_that_are_named_may(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine sends what it likes; a browser for a page nothing that a form could send."""
    machines = statuses(Client("", bearer=False))
    assert set(machines.values()).isdisjoint({401, 403, 415, 421})
    monkeypatch.setenv("TIDINGS_CORS_ORIGINS", f"*,{EVIL}")
    restart()
    pages = statuses(Client("", bearer=False, more={"origin": EVIL}))
    assert pages == machines | {"PUT /health": 415, "POST /health": 415}


def test_the_refusal_says_who_and_what(cloud: Cloud) -> None:
    """In the words of every error."""
    answer = ingest(event("http_post", more={"origin": EVIL}), None)
    error = json.loads(answer["body"])["error"]
    assert (answer["statusCode"], error["code"], error["field"]) == (
        403,
        "foreign_origin",
        "Origin",
    )
    assert EVIL in error["value"]
