"""A feed whose clients' process is killed: they are to be forgotten, which takes its time."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from tidings.server.running import Server

from bench import stream_process
from tests.oplog.feed import Feed, ask
from tests.oplog.wire import until

LISTENERS = 3


@dataclass(frozen=True, slots=True)
class Bereft:
    """*killed_s* is when it happened, by the monotonic clock."""

    feed: Feed
    killed_s: float


def bereave(twin: Server, name: str) -> Bereft:
    """Kill what serves the streams of *twin* under listeners of *name*; return when it is back."""
    feed = Feed(twin.port, name)
    listeners = [feed.open() for _ in range(LISTENERS)]
    until(lambda: feed.status()["clients"] == feed.status()["connections"] == LISTENERS)

    os.kill(stream_process.find(twin.pid), signal.SIGKILL)
    killed_s = time.monotonic()
    for listener in listeners:
        listener.close()
    until(lambda: ask(feed.port, "GET", feed.path).status == 406)  # a new process refuses us
    return Bereft(feed, killed_s)
