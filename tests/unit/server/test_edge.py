"""Readers with a cache that follows CloudFront's rules: equal requests share one, others do not."""

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
from tidings.server.running import Server

READERS = 50
PATIENCE_S = 180.0
SETTLED_S = 0.5
READ, INGEST, OTHER = "the read password", "the ingest password", "another password"

Change = dict[str, Any]


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


def test_who_asks_without_waiting_is_answered_by_the_feed(opened: Server) -> None:
    """An acknowledged change is in the next list, even if another client asked just before."""

    async def scene(made: edge.Edge, client: httpx.AsyncClient) -> None:
        query = f"/changes?since={await post(opened)}"
        assert ids(await client.get(query)) == []
        posted = await post(opened)
        assert ids(await client.get(query)) == [posted]

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
