"""Proxies: links follow known ones, and a cache shares equal requests (CloudFront's rules)."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import edge
from tidings.http.asgi import headers_of
from tidings.http.request import base_url, host_of
from tidings.server.http_server import KnownProxies, networks
from tidings.server.processes import Problem
from tidings.server.running import Server

SAID = {
    "forwarded": "for=9.9.9.9;host=evil.example",
    "x-forwarded-host": "evil.example",
    "x-forwarded-proto": "https",
}


def base(
    proxies: tuple[str, ...],
    client: tuple[str, int] | None,
    *,
    every: bool = False,
    tls: bool = False,
) -> str:
    """Return the address of links that a client gets who sends `SAID`."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    given = {"host": "feed.example", **SAID}
    scope = {
        "type": "http",
        "scheme": "https" if tls else "http",
        "client": client,
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    known = KnownProxies(app, networks(proxies), every=every)
    asyncio.run(known(scope, None, None))  # type: ignore[arg-type]
    return base_url(headers_of(seen[0]), "")


@pytest.mark.parametrize(
    ("proxies", "client"),
    [
        ((), ("127.0.0.1", 1)),
        ((), None),
        (("10.0.0.0/8",), ("192.168.0.1", 1)),
        (("10.0.0.0/8",), ("::1", 1)),
        (("10.0.0.0/8",), None),
    ],
)
def test_a_client_does_not_choose_its_links(
    proxies: tuple[str, ...], client: tuple[str, int] | None
) -> None:
    """This includes a client on the loopback interface, which may be any process."""
    assert base(proxies, client) == "http://feed.example"
    assert base(proxies, client, tls=True) == "https://feed.example"


@pytest.mark.parametrize("client", ["10.1.2.3", "::ffff:10.1.2.3"])
@pytest.mark.parametrize("proxy", ["10.1.2.3", "10.0.0.0/8", "10.1.2.9/24"])
def test_a_known_proxy_is_believed(proxy: str, client: str) -> None:
    """By its address, or that of its network; on an IPv6 socket an IPv4 client has another form."""
    assert base((proxy,), (client, 1)) == "https://evil.example"
    assert base(("::ffff:10.0.0.0/104",), ("::ffff:10.1.2.3", 1)) == "https://evil.example"
    assert base(("11.0.0.0/8",), (client, 1)) == "http://feed.example"


def test_a_proxy_at_a_unix_socket_is_believed() -> None:
    """Nothing else connects there."""
    assert base((), None, every=True) == "https://evil.example"


def test_what_is_no_address_is_refused() -> None:
    """The error names the option."""
    with pytest.raises(Problem, match="--proxy: 'nginx' does not appear to be"):
        networks(["nginx"])


def test_of_several_proxies_the_last_one_counts() -> None:
    """Earlier entries were sent by the client of the last proxy."""
    forwarded = "host=evil.example, for=1.2.3.4;host=feed.example;proto=https"
    assert host_of({"forwarded": forwarded}) == "feed.example"


READERS = 50
PATIENCE_S = 180.0
SETTLED_S = 0.5
READ, INGEST, OTHER = "the read password", "the ingest password", "another password"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Readers show one password, producers another one."""
    secrets: Path = tmp_path_factory.mktemp("secrets")
    (secrets / "read").write_text(READ)
    (secrets / "ingest").write_text(INGEST)
    options = [f"--{role}-password-file={secrets / role}" for role in ("read", "ingest")]
    with Server(*options) as running:
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Server]:
    with Server() as running:
        yield running


def play(server: Server, scene: Callable[[edge.Edge, httpx.AsyncClient], Awaitable[None]]) -> None:
    """Run *scene* with a new edge in front of *server*, and a client of it."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), behind(edge.Edge(server.url)) as (made, client):
            await scene(made, client)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def behind(made: edge.Edge) -> AsyncIterator[tuple[edge.Edge, httpx.AsyncClient]]:
    transport = httpx.ASGITransport(made)
    async with (
        made,
        httpx.AsyncClient(transport=transport, base_url=made.origin, timeout=PATIENCE_S) as client,
    ):
        yield made, client


async def post(server: Server) -> int:
    """Post a change past the edge; return its id."""
    async with httpx.AsyncClient() as client:
        shown = basic(INGEST)
        answer = await client.post(f"{server.url}changes", json={"data": 1}, headers=shown)
    found: int = answer.json()["_id"]
    return found


def ids(answer: httpx.Response) -> list[int]:
    return [each["_id"] for each in answer.json()["changes"]]


def basic(password: str, user: str = "") -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def test_readers_of_one_cursor_are_one_request(opened: Server) -> None:
    """They share it while they wait, and for requests within the next second."""

    async def scene(made: edge.Edge, client: httpx.AsyncClient) -> None:
        before = await post(opened)
        query = f"/changes?since={before}&block=15"
        waiting = [asyncio.ensure_future(client.get(query)) for _ in range(READERS)]
        await asyncio.sleep(SETTLED_S)
        assert not any(each.done() for each in waiting)
        posted = await post(opened)
        late = client.get(query)
        told = [ids(each) for each in await asyncio.gather(*waiting, late)]
        assert told == [[posted]] * (READERS + 1)
        assert made.asked["/changes"] <= 2  # a window of time may have ended in between

    play(opened, scene)


def test_who_heard_nothing_waits_again(opened: Server) -> None:
    """It is not given the same answer at once, again and again."""

    async def scene(made: edge.Edge, client: httpx.AsyncClient) -> None:
        query = f"/changes?since={await post(opened)}&block=1"

        async def reader() -> int:
            rounds, until_s = 0, asyncio.get_running_loop().time() + 2.5
            while asyncio.get_running_loop().time() < until_s:
                assert ids(await client.get(query)) == []
                rounds += 1
            return rounds

        rounds = await asyncio.gather(*(reader() for _ in range(READERS)))
        assert max(rounds) <= 6
        assert made.asked["/changes"] <= 8

    play(opened, scene)


def test_who_shows_another_credential_shares_nothing(server: Server) -> None:
    """It shares neither a wait nor a cached answer; the same holds without a credential."""

    async def scene(made: edge.Edge, client: httpx.AsyncClient) -> None:
        query = "/changes?since=0&block=15"
        shown = [basic(READ), basic(READ, "ann"), basic(OTHER), {}]
        waiting = [
            asyncio.ensure_future(client.get(query, headers=each)) for each in [*shown, *shown]
        ]
        await asyncio.sleep(SETTLED_S)
        await post(server)
        answers = await asyncio.gather(*waiting)
        assert [each.status_code for each in answers] == [200, 200, 401, 401] * 2
        again = [await client.get(query, headers=each) for each in shown]
        assert [each.status_code for each in again] == [200, 200, 401, 401]
        assert not any(b"_id" in each.content for each in [*answers, *again] if each.is_error)

    play(server, scene)


def test_a_cache_that_ignored_the_credential_would_tell_everybody(server: Server) -> None:
    """This proves that the test above can fail: only the cache's key separates the credentials."""

    async def scene(made: edge.Edge, client: httpx.AsyncClient) -> None:
        made.key_headers = ("Origin",)
        query = "/changes?since=0&block=15"
        assert (await client.get(query, headers=basic(READ))).status_code == 200
        assert (await client.get(query)).status_code == 200

    play(server, scene)
