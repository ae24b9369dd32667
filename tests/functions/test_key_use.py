"""*A key leaked* (RUNBOOKS.md): the id of a key leads to its reads, with times and addresses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.ingest.handler import handle as ingest
from functions.receive.handler import handle as receive
from tests.functions.cloud import Cloud, event, give_key, lines_of, message, restart
from tests.functions.streaming import FROM_THE_FIRST, SSE, read
from tests.unit.aws.test_telemetry import Context
from tidings.aws.request_log import source_address
from tidings.aws.stage import stage
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH

ID = "0" * ID_LENGTH
READER = "203.0.113.17"
Capture = pytest.CaptureFixture[str]
Lines = list[dict[str, Any]]


@pytest.fixture
def key(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> str:
    """The key that leaks, on a stage that logs addresses."""
    monkeypatch.setenv("TIDINGS_LOG_ADDRESSES", "direct")
    restart()
    return give_key(Role.READ, Role.INGEST)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def lines_with_key(capsys: Capture, key: str) -> Lines:
    """The lines that the runbook's query finds; none has the secret."""
    lines = lines_of(capsys)
    assert key.removeprefix(f"tdk_{ID}_") not in json.dumps(lines)
    return [line for line in lines if line.get("key") == ID and line.pop("timestamp")]


def test_a_request_is_logged_with_its_key(key: str, capsys: Capture) -> None:
    """The id of the invocation leads to the access log, which has path, time and status."""
    ingest(event("http_post", more=bearer(key)), Context())

    line = {"level": "INFO", "message": "key", "key": ID, "address": READER}
    assert lines_with_key(capsys, key) == [line | {"function_request_id": "request-1"}]


def test_a_request_without_a_key_is_not_logged(cloud: Cloud, capsys: Capture) -> None:
    ingest(event("http_post"), None)
    assert not any(line.get("message") == "key" for line in lines_of(capsys))


def test_a_socket_is_logged_with_its_key(key: str, capsys: Capture) -> None:
    """The id of the connection leads to the access log of the WebSockets."""
    receive(message({"action": "subscribe", "password": key}), Context())

    (line,) = lines_with_key(capsys, key)
    assert line["connection"] == message("")["requestContext"]["connectionId"]
    assert (line["function_request_id"], line["address"]) == ("request-1", READER)


def test_a_stream_is_logged_at_its_start_and_its_end(key: str, capsys: Capture) -> None:
    """Its URL has no access log: the lines have path, cursor, status and size."""
    ingest(event("http_post", more=bearer(key)), None)
    capsys.readouterr()
    headers = {
        **FROM_THE_FIRST,
        **bearer(key),
        "x-amzn-lambda-context": json.dumps({"request_id": "request-2"}),
        "x-amzn-request-context": json.dumps({"http": {"sourceIp": READER}}),
    }
    _, _, text = read("/", headers=headers, until="\n\n")

    begin, end = lines_with_key(capsys, key)
    shared = {"level": "INFO", "function_request_id": "request-2", "key": ID, "path": "/"}
    shared["address"] = READER
    cursor = FROM_THE_FIRST["last-event-id"]
    assert begin == shared | {"message": "begin", "status": 200, "cursor": cursor}
    assert end == shared | {"message": "end", "bytes": len(text)}


def test_a_refused_stream_has_one_line(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.delenv("TIDINGS_OPEN")
    restart()
    read("/", headers={**SSE, "x-amzn-request-context": "[", **bearer("tdk_no")})
    (line,) = lines_of(capsys)
    assert (line["message"], line["status"]) == ("begin", 401)


def test_addresses_are_logged_only_if_the_setting_says_so(cloud: Cloud, capsys: Capture) -> None:
    key = give_key(Role.INGEST)
    ingest(event("http_post", more=bearer(key)), None)
    (line,) = lines_with_key(capsys, key)
    assert "address" not in line


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({}, "10.0.0.1"),
        ({"x-forwarded-for": "192.0.2.1, 198.51.100.7"}, "198.51.100.7"),
        ({"x-forwarded-for": "192.0.2.1, 198.51.100.7, 10.0.0.2"}, "198.51.100.7"),
        ({"forwarded": 'for=192.0.2.1, for="[2001:db8::7]";proto=https'}, "2001:db8::7"),
        ({"x-forwarded-for": "10.0.0.3"}, "10.0.0.3"),
        ({"x-forwarded-for": "unknown"}, "unknown"),
    ],
)
def test_the_last_address_that_is_not_a_trusted_proxy(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], address: str
) -> None:
    """A client may write any address before its own."""
    monkeypatch.setenv("TIDINGS_LOG_ADDRESSES", "10.0.0.0/8, 2001:db9::/32")
    restart()
    proxies = stage().settings.address_proxies
    assert proxies is not None
    assert source_address("10.0.0.1", headers, proxies) == address


def test_an_address_cannot_be_forged_without_a_proxy() -> None:
    assert source_address(READER, {"x-forwarded-for": "192.0.2.1"}, ()) == READER
