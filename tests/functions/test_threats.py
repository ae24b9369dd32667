"""What docs/operations/SECURITY.md says of single threats and no other test shows."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from functions.connect.handler import handle as connect
from functions.ingest.handler import handle as ingest
from functions.receive.handler import handle as receive
from tests.functions.cloud import Cloud, event, forget, message, restart
from tests.functions.streaming import SSE, read
from tidings.aws import clients, telemetry

FORGED = 'x\n{"level":"INFO","message":"forged"}\r\n\u2028\x1b[2J'


@pytest.fixture
def closed(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A stage as it is deployed; its operations were posted before."""
    ingest(event("http_post"), None)
    monkeypatch.setenv("TIDINGS_OPEN", "false")
    restart()
    return cloud


@pytest.mark.parametrize("cursor", ["0", "now", "545b55c7f095528dd0f3863c", "nonsense"])
def test_a_cursor_opens_nothing(closed: Cloud, cursor: str) -> None:
    """A client with a cursor needs the password all the same, and learns nothing of the feed."""
    status, _, text = read("/", headers={**SSE, "last-event-id": cursor})

    assert status == 401
    assert json.loads(text)["error"]["code"] == "no_password_set"


def test_a_handshake_carries_no_right(closed: Cloud) -> None:
    """A browser sends cookies and its origin by itself, and perhaps a password it remembers."""
    own = {
        "Origin": "https://evil.example",
        "Cookie": "session=1",
        "Authorization": "Basic OnJlYWQ=",
    }
    connect(event("socket_connect", more=own), None)
    receive(message({"action": "subscribe"}), None)

    ((_, answer),) = closed.posted
    assert answer["error"]["code"] == "no_password_set"


def test_a_line_break_makes_no_second_line_of_the_log(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also if a function fails because of a name in the request."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "forged")  # a logger that writes where we read
    forget(telemetry)
    body = json.dumps({"event": "update", "type": FORGED, "id": FORGED, "parents": [FORGED]})
    assert ingest(event("http_post", body=body), None)["statusCode"] == 204
    ingest(event("http_post", body=FORGED), None)
    clients.dynamodb().delete_table(TableName="log")
    with pytest.raises(ClientError):
        ingest(event("http_post", body=body, pathParameters={"feed": "main"}, rawPath=FORGED), None)

    lines = capfd.readouterr().out.splitlines()
    assert len(lines) >= 3
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert not any(json.loads(line).get("message") == "forged" for line in lines)
    forget(telemetry)
