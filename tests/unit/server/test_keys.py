"""Rule 17.11: which keys there are, over HTTP, and the end of one."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.hosts import make_key
from tidings.core import limits
from tidings.server.running import Server

WITHIN_S = limits.KEY_AGE_MS / 1000 + 5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def operator(server: Server) -> Iterator[httpx.Client]:
    shown = {"authorization": f"Bearer {make_key(server, '--role', 'admin')}"}
    with httpx.Client(base_url=server.url, headers=shown) as client:
        yield client


def test_P17_11_keys_are_told_without_their_secrets(server: Server, operator: httpx.Client) -> None:
    """The list has the ids and the rights of the keys."""
    made = make_key(server, "--role", "read", "--parent", "user/42", "--label", "the shop")
    _, id_, secret = made.split("_", 2)

    answer = operator.get("feeds/main/keys")
    (key,) = [each for each in answer.json()["keys"] if each["id"] == id_]
    assert key["state"] == "holds"
    assert (key["roles"], key["parents"], key["label"]) == (["read"], ["user/42"], "the shop")
    assert secret not in answer.text


def test_P17_11_a_revoked_key_opens_nothing(server: Server, operator: httpx.Client) -> None:
    """It is still listed; a second revocation changes nothing."""
    made = make_key(server, "--role", "read")
    path = f"feeds/main/keys/{made.split('_')[1]}/revoke"
    status, read = f"{server.url}feeds/main/consumers", {"authorization": f"Bearer {made}"}
    assert httpx.get(status, headers=read).status_code == 200

    first, second = operator.post(path).json(), operator.post(path).json()
    assert first["state"] == "revoked"
    assert second["revoked_at"] == first["revoked_at"]
    deadline = time.monotonic() + WITHIN_S
    while (answer := httpx.get(status, headers=read)).is_success:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert answer.json()["error"]["code"] == "wrong_key"


@pytest.mark.parametrize(
    ("id_", "status", "code"),
    [("3k2m9c0q8xw1", 404, "unknown_key"), ("no-id", 400, "invalid_setting")],
)
def test_P17_11_what_is_no_key_is_not_revoked(
    operator: httpx.Client, id_: str, status: int, code: str
) -> None:
    """The error has the field, the value and the rule."""
    answer = operator.post(f"feeds/main/keys/{id_}/revoke")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["field"] == "id"


@pytest.mark.parametrize("role", ["read", "ingest", "consume"])
def test_P17_11_both_take_admin(server: Server, role: str) -> None:
    """With another key they are neither listed nor revoked."""
    shown = {"authorization": f"Bearer {make_key(server, '--role', role)}"}
    listed = httpx.get(f"{server.url}feeds/main/keys", headers=shown)
    ended = httpx.post(f"{server.url}feeds/main/keys/3k2m9c0q8xw1/revoke", headers=shown)
    assert [(each.status_code, each.json()["error"]["code"]) for each in (listed, ended)] == [
        (403, "outside_key")
    ] * 2


def test_P17_7_a_stream_that_is_read_slowly_ends_with_its_key(
    server: Server, operator: httpx.Client
) -> None:
    """Its connection is reset, although data waits for its client."""
    secret = make_key(server, "--role", "read")
    page = [
        {"event": "insert", "type": "v", "id": str(each), "data": "x" * 4000} for each in range(100)
    ]
    writer = {"authorization": f"Bearer {make_key(server, '--role', 'ingest')}"}
    for _ in range(20):
        httpx.post(f"{server.url}ops", json=page, headers=writer).raise_for_status()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect(("127.0.0.1", server.port))
        head = "GET /ops?lastEventId=0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        client.sendall(f"{head}Authorization: Bearer {secret}\r\n\r\n".encode())
        assert client.recv(64).startswith(b"HTTP/1.1 200 ")
        time.sleep(1)  # the server fills every buffer
        operator.post(f"feeds/main/keys/{secret.split('_')[1]}/revoke").raise_for_status()
        until_s = time.monotonic() + 30
        with pytest.raises(ConnectionError):
            while time.monotonic() < until_s:
                client.recv(500)
                time.sleep(0.2)


def test_P10_10_a_key_is_told_its_rights(server: Server) -> None:
    """With the part of the feed; a missing, wrong or ended credential grants nothing."""
    key = make_key(server, "--role", "read", "--role", "ingest", "--parent", "user/42")
    url = f"{server.url}feeds/main/access"
    answer = httpx.get(url, headers={"authorization": f"Bearer {key}"}).json()
    assert answer["principal"] == key.split("_")[1]
    assert answer["roles"] == [
        {"role": role, "types": None, "parents": ["user/42"]} for role in ("read", "ingest")
    ]
    nothing = {"principal": None, "roles": []}
    for shown in ({}, {"authorization": f"Bearer {key[:-1]}"}, {"authorization": "Bearer x"}):
        refused = httpx.get(url, headers=shown)
        assert (refused.status_code, refused.json()) == (200, nothing)
        assert "www-authenticate" not in refused.headers


def test_P10_10_a_key_of_the_host_is_told_its_rights(server: Server) -> None:
    """On the feeds that it permits; `admin` includes two roles."""
    key = make_key(server, "--host", "--role", "admin", "--feeds", "ma")
    headers = {"authorization": f"Bearer {key}"}
    roles = httpx.get(f"{server.url}feeds/main/access", headers=headers).json()["roles"]
    assert [each["role"] for each in roles] == ["consume", "erase", "admin"]
