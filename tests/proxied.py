"""A proxy that serves in parallel to a synchronous test."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from tests.proxy import Proxy


@contextlib.contextmanager
def serving(proxy: Proxy) -> Iterator[None]:
    """Serve in a thread and a loop of its own."""
    serves, end = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with proxy.serving():
            serves.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    serves.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
