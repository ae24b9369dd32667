"""The demo of a host: a child process that posts events to the feed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

from tidings.server import installed, processes
from tidings.server.processes import Child


async def start(repository: Path | None, url: str, output: IO[bytes] | int) -> Child:
    """
    Post the history of *repository* to *url*; default: the checkout's history, or invented events.

    The child ends with this process, even if this process crashes.
    """
    history = repository or installed.find().history
    what = ["--repo", str(history)] if history else ["--made-up"]
    command = [sys.executable, "-m", "tidings.client.demo", "--url", url, *what]
    return await processes.start(command, output=output)
