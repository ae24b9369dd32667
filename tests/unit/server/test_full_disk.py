"""A disk without room: what producers are answered, and that the feed goes on behind it."""

from __future__ import annotations

import asyncio
import json
import random
import string
from pathlib import Path
from typing import Any

from tests.unit.server.test_crashes import FEED, executed, hosted
from tidings.server.app import ServerApp

LARGE = "".join(random.Random(0).choices(string.ascii_letters, k=60_000))  # which packs badly
PAGES_MAX = 1_000_000
_HEADERS = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]


async def post(app: ServerApp, name: str) -> tuple[int, str]:
    """The status of the answer, and when to try again."""
    operation = {"event": "insert", "type": "video", "id": name, "data": LARGE}
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(operation).encode()}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {"type": "http", "method": "POST", "path": "/ops", "query_string": b""}
    await app({**scope, "headers": _HEADERS}, receive, send)
    return answers[0]["status"], dict(answers[0]["headers"]).get(b"retry-after", b"").decode()


def test_a_full_disk_is_answered_with_503(tmp_path: Path) -> None:
    """Those that share a commit, too. Nothing of them is there, and with room the feed goes on."""

    async def main() -> tuple[list[tuple[int, str]], tuple[int, str], list[str]]:
        async with hosted(tmp_path / "feed.db") as (host, app):
            (used,) = await asyncio.to_thread(executed, host.database, "PRAGMA page_count")
            await asyncio.to_thread(executed, host.database, f"PRAGMA max_page_count = {used}")
            refused = await asyncio.gather(*(post(app, name) for name in "abc"))
            more = f"PRAGMA max_page_count = {PAGES_MAX}"
            await asyncio.to_thread(executed, host.database, more)
            answered = await post(app, "d")
            pages = await asyncio.to_thread(host.stores.log.read, FEED, 0)
            lines = [line for page in pages for line in page.lines]
            return refused, answered, [json.loads(line)["id"] for line in lines]

    refused, answered, written = asyncio.run(main())
    assert refused == [(503, "1")] * 3
    assert (answered, written) == ((204, ""), ["d"])
