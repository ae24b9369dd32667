"""Print the files of Tidings that a request passes on a server, in order.

    python -m tests.docs.walks

A file counts if one of its functions was called, also by the follower threads that run at the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tests.unit.server.test_crashes import BEFORE_THE_FIRST, Consumer, Producer, hosted
from tidings.server.app import ServerApp

QUIET_S = 0.3  # until what went before is over, and nothing else is counted
_HEADERS = [(b"host", b"127.0.0.1"), (b"last-event-id", BEFORE_THE_FIRST.encode())]


class Walk:
    """The files passed while `counting`."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self._counts = False

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        self.files, self._counts = {}, True
        yield
        self._counts = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        _, ours, file = frame.f_code.co_filename.partition("/tidings/")
        if self._counts and event == "call" and ours and "site-packages" not in file:
            self.files[file] = None


async def from_post_to_frame(app: ServerApp, walk: Walk) -> None:
    consumer = Consumer(app)
    listening = asyncio.ensure_future(consumer.listen(2))
    while not consumer.heard:
        await asyncio.sleep(QUIET_S)
    with walk.counting():
        await Producer(app, "second").post(1)
        await listening


async def resume_over_sse(app: ServerApp, walk: Walk) -> None:
    heard, incoming = asyncio.Event(), asyncio.Queue[dict[str, Any]]()
    incoming.put_nowait({"type": "http.request", "body": b""})

    async def send(message: Any) -> None:
        if b"second-0" in message.get("body", b""):
            heard.set()

    scope = {"type": "http", "method": "GET", "path": "/ops", "query_string": b""}
    with walk.counting():
        stream = asyncio.ensure_future(
            app({**scope, "headers": [*_HEADERS, (b"accept", b"*/*")]}, incoming.get, send)
        )
        await heard.wait()
    incoming.put_nowait({"type": "http.disconnect"})
    await stream


async def walks(path: Path) -> None:
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    async with hosted(path) as (_, app):
        await Producer(app, "first").post(1)
        for name, go in (
            ("From POST to a frame on a WebSocket", from_post_to_frame),
            ("Resuming over SSE", resume_over_sse),
        ):
            await go(app, walk)
            click.echo(f"{name}: {len(walk.files)} files")
            click.echo("".join(f"  {file}\n" for file in walk.files))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(walks(Path(folder) / "feed.db"))
