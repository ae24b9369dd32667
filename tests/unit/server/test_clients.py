"""Rule 9.11: the clients that are connected to a server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from click.testing import CliRunner
from websockets.sync.client import connect

from tests.compat.oplog.wire import until
from tests.hosts import make_key
from tidings.client import Operator
from tidings.client.cli.main import main
from tidings.core import limits
from tidings.server.running import Server

OPERATION = {"event": "update", "type": "video", "id": "x", "parents": ["user/1"]}


@contextmanager
def streamed(server: Server, headers: dict[str, str], query: str = "") -> Iterator[httpx.Response]:
    """Open an event stream, and read its head."""
    url = f"{server.url}feeds/main/ops?{query}"
    with httpx.stream("GET", url, headers=headers, timeout=30) as stream:
        assert stream.status_code == 200
        yield stream


@pytest.fixture
def keys(server: Server) -> tuple[str, str]:
    """Return the keys of a reader of one type and of an operator; a page was posted."""
    admin = make_key(server, "--role", "read", "--role", "ingest")
    auth = {"authorization": f"Bearer {admin}"}
    httpx.post(f"{server.url}ops", json=OPERATION, headers=auth).raise_for_status()
    return make_key(server, "--role", "read", "--type", "video"), admin


@contextmanager
def connected(server: Server, reader: str, admin: str) -> Iterator[None]:
    """Connect a client of each transport."""
    shown = {"authorization": f"Bearer {reader}", "user-agent": "a reader/1.0"}
    lines = {"authorization": f"Bearer {admin}", "accept": "application/x-ndjson"}
    with ExitStack() as stack:
        stack.enter_context(streamed(server, {**shown, "accept": "text/event-stream"}))
        stack.enter_context(streamed(server, {**lines, "last-event-id": "0"}, "parents=user/1"))
        ws = stack.enter_context(connect(server.ws_url, user_agent_header="a socket"))
        ws.send(json.dumps({"action": "subscribe", "password": reader}))
        assert "subscribed" in str(ws.recv())
        poll = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        head = "GET /feeds/main/changes?block=10&tag=none HTTP/1.1\r\nhost: localhost\r\n"
        fields = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
        poll.sendall(f"{head}{fields}\r\n".encode())
        yield


def test_9_11_clients_of_every_transport(server: Server, keys: tuple[str, str]) -> None:
    """With their filter and key; each is gone when it has disconnected."""
    reader, admin = keys
    with Operator(server.url, password=admin) as operator:
        assert operator.clients()["total"] == 0
        with connected(server, reader, admin):
            until(lambda: operator.clients()["total"] == 4)
            until(lambda: {each["lag_pages"] for each in operator.clients()["clients"]} == {0})
            answer = operator.clients()
            command = ["clients", "--url", server.url, "--password", admin]
            printed = CliRunner().invoke(main, command).stdout.splitlines()
        until(lambda: operator.clients()["total"] == 0)
    found = {each["transport"]: each for each in answer["clients"]}
    id_, own = reader.split("_")[1], admin.split("_")[1]
    assert {name: each["principal"] for name, each in found.items()} == {
        **{"sse": id_, "websocket": id_, "long-poll": id_},
        "ndjson": own,
    }
    assert found["sse"]["filter"] == found["websocket"]["filter"] == {"types": ["video"]}
    assert found["ndjson"]["filter"] == {"parents": ["user/1"]}
    agents = [found[name]["user_agent"] for name in ("sse", "websocket", "long-poll")]
    assert agents == ["a reader/1.0", "a socket", "a reader/1.0"]
    assert all(each["since"].startswith("20") for each in found.values())
    assert not any(key.split("_", 2)[2] in str(answer) for key in keys)
    assert printed[0].startswith("4 connected") and "a socket" in "".join(printed)


def test_9_11_a_long_name_is_cut(server: Server) -> None:
    """A restricted key sees no client."""
    admin = make_key(server, "--role", "read")
    agent = {"user-agent": "x" * 500, "authorization": f"Bearer {admin}"}
    bounded = {"authorization": f"Bearer {make_key(server, '--role', 'read', '--type', 'a')}"}
    url = f"{server.url}feeds/main/clients"
    with streamed(server, agent), Operator(server.url, password=admin) as operator:
        until(lambda: operator.clients()["total"] == 1)
        (client,) = operator.clients()["clients"]
        assert client["user_agent"] == "x" * limits.USER_AGENT_CHARS
        refused = httpx.get(url, headers=bounded)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "outside_key")
