"""Passwords at the functions: POST, SSE and WebSocket, on a stage that is closed by default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from functions.connect.handler import handle as connect
from functions.ingest.handler import handle as ingest
from functions.receive.handler import handle as receive
from tests.functions.cloud import Cloud, basic, event, forget, message, restart
from tests.functions.streaming import SSE, read
from tidings.aws import clients, telemetry
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.auth.passwords import hash_password
from tidings.core.settings.profiles import Profile, RecentProfiles

READ, INGEST = "the read: password", "the ingest password"
PROFILE = Profile(
    read_passwords=(hash_password(READ, salt=b"1" * 16, now_ms=0),),
    ingest_passwords=(hash_password(INGEST, salt=b"2" * 16, now_ms=0),),
)


def encoded(password: str) -> str:
    return basic(password)["authorization"].removeprefix("Basic ")


@pytest.fixture
def chatty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A logger that writes every record to a stream that this test can read."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "chatty")
    monkeypatch.setenv("POWERTOOLS_LOGGER_LOG_EVENT", "true")
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
    forget(telemetry)
    yield
    forget(telemetry)


@pytest.fixture
def closed(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The stage as it is deployed: nothing is open."""
    monkeypatch.delenv("TIDINGS_OPEN")
    restart()
    return cloud


@pytest.fixture
def guarded(closed: Cloud) -> Cloud:
    """With a password for each role."""
    assert stage().profiles.save("main", PROFILE)
    return closed


def post(headers: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    return ingest(event("http_post", more=headers, **changes), None)


def code(answer: dict[str, Any]) -> str:
    found: str = json.loads(answer["body"])["error"]["code"]
    return found


def stream(headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
    """Return the answer to a GET of a client that leaves at the first event."""
    return read("/", headers={**SSE, **headers, "last-event-id": "0"}, until="live")


def subscribe(cloud: Cloud, **fields: object) -> Any:
    """Return the last answer on a connection that was just opened."""
    connect(event("socket_connect"), None)
    receive(message({"action": "subscribe", **fields}), None)
    return cloud.posted[-1][1]


@pytest.mark.parametrize("said", [{}, {"password": "a wrong one"}, {"password": INGEST}])
def test_a_socket_says_the_password_with_its_subscription(
    guarded: Cloud, said: dict[str, str]
) -> None:
    """The connection stays open after a wrong one, so that it may say another."""
    assert subscribe(guarded, **said)["error"]["code"] == "wrong_password"
    assert guarded.closed == []
    receive(message({"action": "resume", "cursor": "now", "password": READ}), None)
    assert guarded.posted[-1][1]["reply"] == "subscribed"


def test_a_socket_that_says_nonsense_does_not_hear_it_again(guarded: Cloud) -> None:
    """What cannot be read may hold a password."""
    connect(event("socket_connect"), None)
    for text in (f'{{"password":"{READ}"', json.dumps([READ]), json.dumps({"password": [READ]})):
        receive(message(text), None)
        told = json.dumps(guarded.posted[-1][1])
        assert "invalid_message" in told and READ not in told
    receive(message({"action": "subscribe", "password": [READ]}), None)
    assert READ not in json.dumps(guarded.posted[-1][1])


def test_without_a_password_a_stage_is_closed(closed: Cloud) -> None:
    """Every way in names the command that opens it."""
    answer = post(basic("anything"))
    assert (answer["statusCode"], code(answer)) == (401, "no_password_set")
    assert "tidings feed password ingest --feed main" in answer["body"]
    assert "tidings feed password read --feed main" in stream({})[2]
    assert subscribe(closed)["error"]["code"] == "no_password_set"


def test_a_change_counts_in_a_running_process(
    guarded: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within `limits.PROFILE_AGE_MS`: the process reads the profile again."""
    assert post(basic(INGEST))["statusCode"] == 204
    others = RecentProfiles(
        stage().stores.profiles, stage().runtime.clock
    )  # what another process would change
    new = hash_password("the next one", salt=b"3" * 16, now_ms=0)
    found = others.profile("main")
    assert others.save("main", replace(found, ingest_passwords=(new, *found.ingest_passwords)))
    assert post(basic("the next one"))["statusCode"] == 401
    monkeypatch.setattr(limits, "PROFILE_AGE_MS", 0)
    assert post(basic("the next one"))["statusCode"] == 204
    assert post(basic(INGEST))["statusCode"] == 204


def test_no_password_is_ever_logged(
    guarded: Cloud, chatty: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even if Powertools logs events and a handler fails under the request."""
    post(basic(INGEST))
    post(basic("a wrong one"))
    connect(event("socket_connect"), None)
    for table in ("log", "connections"):
        clients.dynamodb().delete_table(TableName=table)
    with pytest.raises(ClientError):
        post(basic(INGEST))
    with pytest.raises(ClientError):
        receive(message({"action": "subscribe", "password": READ}), None)
    written = "".join(capfd.readouterr())
    assert written.count("the function failed") == 2
    for secret in (INGEST, READ, "a wrong one", "scrypt"):
        assert secret not in written and encoded(secret) not in written
