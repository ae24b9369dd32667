"""A thousand readers that wait behind one cursor, through a cache with CloudFront's rules."""

from __future__ import annotations

import asyncio

import httpx
from tidings.server.running import Server

from .edge import Edge
from .sections import Section

_CHANGES = 10
_SETTLED_S = 2.0


async def _asked(server: Server, readers: int) -> tuple[int, bool]:
    """Requests that the server got, and whether every reader was told each change, in order."""
    async with Edge(server.url) as edge, httpx.AsyncClient(base_url=server.url) as producer:
        transport = httpx.ASGITransport(edge)
        async with httpx.AsyncClient(
            transport=transport, base_url=server.url, timeout=60
        ) as client:
            first = await _post(producer)

            async def read() -> list[int]:
                at = first
                told: list[int] = []
                while len(told) < _CHANGES:
                    found = (await client.get(f"/changes?since={at}&block=20")).json()
                    told += [each["_id"] for each in found["changes"]]
                    at = found["next"]
                return told

            reading = [asyncio.ensure_future(read()) for _ in range(readers)]
            posted = []
            for _ in range(_CHANGES):
                await asyncio.sleep(_SETTLED_S)
                posted.append(await _post(producer))
            heard = await asyncio.gather(*reading)
            return edge.asked["/changes"], all(each == posted for each in heard)


async def _post(client: httpx.AsyncClient) -> int:
    found: int = (await client.post("/changes", json={"data": 1})).json()["_id"]
    return found


def measure(readers: int = 1_000) -> Section:
    with Server() as server:
        asked, whole = asyncio.run(_asked(server, readers))
    return Section(
        f"{readers:,} readers that wait behind one cursor, through a cache",
        "at most three requests to the server a change, every reader told all in order",
        [
            (f"changes posted, {_SETTLED_S:.0f} s apart", f"{_CHANGES}"),
            ("requests of the readers", f"at least {readers * _CHANGES:,}"),
            ("requests that the server got", f"{asked:,}"),
        ],
        met=whole and asked <= 3 * (_CHANGES + 1),
        notes=["`bench.edge` keeps to CloudFront's documented rules; nothing ran on AWS."],
    )
