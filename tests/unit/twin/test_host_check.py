"""The requests that the twin's public port accepts, over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from infra import ROOT
from tests.twin import environment, twin
from tests.twin.http_gateway import HttpGateway
from tests.twin.options import Options
from tests.twin.runtime_api import Answer
from tests.twin.socket_gateway import SocketGateway
from tidings.aws.config import deployment
from tidings.server import processes
from tidings.server.http_server import HostCheck

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


def statuses(headers: Mapping[str, str]) -> dict[str, int]:
    """Return the statuses of a twin's answers to requests with *headers*, by kind of request."""

    async def invoke(name: str, payload: bytes) -> Answer:
        return Answer(b'{"statusCode":200}')

    async def ask() -> dict[str, int]:
        (listener,) = processes.listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        http = HttpGateway(deployment.HTTP_ROUTES, invoke, {}, console=ROOT / "console", origins=())
        sockets = SocketGateway(deployment.SOCKET_ROUTES, invoke)
        allowed = HostCheck({"feed.lan"}, {PAGE})
        async with (
            twin.serving_apis(http, sockets, [listener], allowed),
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client,
        ):
            return {
                "read": (await client.get("/status")).status_code,
                "post": (await client.post("/ops", json={})).status_code,
                "page": (await client.get("/console/")).status_code,
                "socket": await handshake(port, headers),
            }

    return asyncio.run(ask())


async def handshake(port: int, headers: Mapping[str, str]) -> int:
    shown = dict(headers)
    host = shown.pop("host", f"127.0.0.1:{port}")
    try:
        async with connect(
            f"ws://{host if ':' in host else f'{host}:80'}/ws",
            host="127.0.0.1",
            port=port,
            additional_headers=shown,
        ):
            return 200
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.parametrize("who", WHO)
def test_who_may_come(who: str) -> None:
    """Machines, our own pages and listed ones are accepted; pages under a foreign host name are
    not."""
    headers, status = WHO[who]
    assert statuses(headers) == dict.fromkeys(("read", "post", "page", "socket"), status)


def test_a_twin_knows_its_own_name_alone() -> None:
    """Options add other names, and pages."""
    assert environment.host_check(Options()) == HostCheck(frozenset({"127.0.0.1"}), ())
    told = Options(host="Box.lan", allow_hosts=("Feed.lan",), allow_origins=(PAGE,))
    assert environment.host_check(told) == HostCheck(frozenset({"box.lan", "feed.lan"}), (PAGE,))
