"""A client that stops in the middle of a stream: it is disconnected and costs others nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import until
from tidings.server.running import Server

pytestmark = pytest.mark.curl
PAGES, OPERATIONS, DATA = 24, 180, "x" * 4000  # 17 MB, more than the buffers of two sockets
_LISTEN = "0A"  # a state in /proc/net/tcp


def test_a_client_that_stops_reading_is_disconnected(server: Server, feed: Feed) -> None:
    """A stopped curl: the stream ends, and is counted no more."""
    (start,) = feed.post(op("x"))
    for page in range(PAGES):
        feed.post(*[op(f"{page}-{number}", data=DATA) for number in range(OPERATIONS)])
    url = f"{server.url}feeds/{feed.name}/ops?lastEventId={start}"
    command = ["curl", "-sN", "-o", "/dev/null", "--limit-rate", "1k"]
    with subprocess.Popen([*command, "-H", "Accept: text/event-stream", url]) as client:
        until(lambda: feed.status()["clients"] == 1)
        os.kill(client.pid, signal.SIGSTOP)
        try:
            until(lambda: feed.status()["clients"] == 0)
            until(lambda: _connections(server) == 0)
        finally:
            client.kill()


def _connections(server: Server) -> int:
    """Return how many connections the server has open, as the kernel lists them.

    A socket that was closed but that the kernel still keeps has no inode.
    """
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [row for row in rows if int(row[1].partition(":")[2], 16) == server.port]
    return len([row for row in own if row[3] != _LISTEN and row[9] != "0"])
