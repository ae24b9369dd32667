"""The HTTP endpoint of the agent, without a port: its answers when the disk accepts no requests."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.processes import operation
from tidings.agent.http import Application, Committing
from tidings.agent.queue import NAME, Bound, Store
from tidings.http.asgi import Message


class Door:
    """An application over a queue, and how often it said that the queue grew."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.prepare("main")
        self.grown = 0
        committing = Committing(self.store, Bound(), self._grow)
        self.application = Application(committing, dict)

    def _grow(self) -> None:
        self.grown += 1

    async def post(
        self, body: bytes, *, gone: bool = False, encoding: str = "identity"
    ) -> list[Message]:
        """Return the messages of the answer; *gone*: the producer disconnects in the middle of its
        body.
        """
        headers = [(b"content-type", b"application/json"), (b"content-encoding", encoding.encode())]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        parts: list[dict[str, Any]] = [
            {"type": "http.request", "body": body[:10], "more_body": True},
            {"type": "http.disconnect"} if gone else {"type": "http.request", "body": body[10:]},
        ]
        said: list[Message] = []

        async def receive() -> dict[str, Any]:
            return parts.pop(0)

        async def send(message: Message) -> None:
            said.append(message)

        await self.application(scope, receive, send)
        return said


def test_requests_at_the_same_time_share_a_write(tmp_path: Path) -> None:
    """Fifty producers do not wait for fifty writes; each operation is queued once."""
    door = Door(tmp_path)

    async def scene() -> list[list[Message]]:
        return await asyncio.gather(*[door.post(operation(n)) for n in range(50)])

    answers = asyncio.run(scene())

    assert {said[0]["status"] for said in answers} == {204}
    assert door.store.totals().received == 50
    assert door.grown <= 3


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(operation("a")), "gzip", 204),
        (gzip.compress(operation("a"))[:-1], "gzip", 400),
        (gzip.compress(b" " * 100_000_000), "gzip", 413),
        (operation("a"), "gzip", 400),
        (operation("a"), "br", 415),
    ],
    ids=["gzip", "early", "bomb", "plain", "other"],
)
def test_a_body_is_decompressed(tmp_path: Path, body: bytes, encoding: str, status: int) -> None:
    """The size is limited as for requests; the queue stores operations and not gzip."""
    door = Door(tmp_path)
    said = asyncio.run(door.post(body, encoding=encoding))

    assert said[0]["status"] == status
    assert door.store.totals().received == (status == 204)


def test_a_damaged_queue_is_said(tmp_path: Path) -> None:
    door = Door(tmp_path)
    for pragma in ("wal_checkpoint(TRUNCATE)", "shrink_memory"):
        door.store.read(f"PRAGMA {pragma}")
    with open(tmp_path / NAME, "r+b") as file:
        file.seek(4096)  # after the first page, which was read already
        file.write(b"x" * 200_000)
    start, body = asyncio.run(door.post(operation("a")))
    assert start["status"] == 503 and b"malformed" in body["body"]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """Each waiting request gets 503 with a time to retry; then requests succeed again."""
    door = Door(tmp_path)
    ((pages,),) = door.store.read("PRAGMA page_count")
    door.store.read(f"PRAGMA max_page_count = {pages}")
    large = operation("a", data="x" * 60_000)

    async def scene() -> list[list[Message]]:
        return list(await asyncio.gather(door.post(large), door.post(large)))

    for start, body in asyncio.run(scene()):
        assert start["status"] == 503
        assert (b"retry-after", b"1") in start["headers"]
        assert json.loads(body["body"])["error"]["code"] == "unavailable"
    door.store.read("PRAGMA max_page_count = 100000")
    assert asyncio.run(door.post(large))[0]["status"] == 204
    assert door.application.errors == 0


def test_half_a_request_is_none(tmp_path: Path) -> None:
    """A producer that leaves before its body ends has posted nothing."""
    door = Door(tmp_path)

    assert asyncio.run(door.post(operation("a"), gone=True)) == []
    assert door.store.totals().received == 0
