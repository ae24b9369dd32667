"""What the functions of changes do that asks DynamoDB for something."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tidings.core import limits

from functions.administer.handler import handle as administer
from functions.index.handler import handle as index
from functions.propose.handler import handle as propose
from tests.functions.cloud import event, start_anew

Asked = set[tuple[str, str]]
FORM = "application/x-www-form-urlencoded"


def post(body: str = "1", **headers: str) -> None:
    named = {"content-type": "application/json", **headers}
    propose(event("http_post", body=body, headers=named), None)


def proposing(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    asked = watch()
    post()
    post(**{"idempotency-key": "k"})
    post(**{"idempotency-key": "k"})
    post("{")
    return asked


def administering(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    start_anew()
    asked = watch()
    for key, kind, body in (
        ("GET /health", "", ""),
        ("PUT /health", FORM, "up=true"),
        ("GET /config", "", ""),
        ("PUT /config", "text/yaml", "{}"),
        ("GET /cluster", "", ""),
        ("GET /diagnostics/{part}", "", ""),
    ):
        sent = event("http_get_status", routeKey=key, headers={"content-type": kind}, body=body)
        assert administer({**sent, "pathParameters": {"part": "raft"}}, None)["statusCode"] == 200
    return asked


def indexing(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    for number in range(limits.SUMMARY_PAGES):
        post(json.dumps({"data": number, "tags": ["t"]}))
    start_anew()
    asked = watch()
    index({}, None)
    index({}, None)
    return asked
