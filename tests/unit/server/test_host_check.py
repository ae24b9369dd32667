"""The requests that a server accepts by their host and origin, over HTTP and WebSocket."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tidings.server.running import Server

PAGE = "https://page.example"
WHO: Mapping[str, tuple[Mapping[str, str], int]] = {
    "a machine": ({}, 200),
    "a name of ours": ({"host": "feed.lan:8042"}, 200),
    "a named page": ({"origin": PAGE}, 200),
    "our own page": ({"origin": "http://feed.lan", "host": "feed.lan"}, 200),
    "a page elsewhere": ({"origin": "https://evil.example"}, 403),
    "a file": ({"origin": "null"}, 403),
    "a rebound name": ({"host": "evil.example", "origin": "http://evil.example"}, 421),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--allow-host", "feed.lan", "--allow-origin", PAGE) as running:
        yield running


def handshake(port: int, headers: Mapping[str, str]) -> int:
    shown = dict(headers)
    host = shown.pop("host", f"127.0.0.1:{port}")
    try:
        with connect(
            f"ws://{host if ':' in host else f'{host}:80'}/ws",
            sock=socket.create_connection(("127.0.0.1", port)),
            additional_headers=shown,
        ):
            return 200
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.parametrize("who", WHO)
def test_who_may_come(who: str, server: Server) -> None:
    """Machines, our own pages and listed ones are accepted; pages under a foreign host name are
    not.
    """
    headers, status = WHO[who]
    operation = {"event": "update", "type": "video", "id": "a"}
    answered = {"prefer": "return=representation"}  # a body, and so 200
    with httpx.Client(base_url=server.url, headers=headers) as client:
        found = {
            "read": client.get("/status").status_code,
            "post": client.post("/ops", json=operation, headers=answered).status_code,
            "page": client.get("/console/").status_code,
            "socket": handshake(server.port, headers),
        }
    assert found == dict.fromkeys(found, status)
