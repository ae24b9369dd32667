"""Print the addresses that a job of Spark can reach. Runs on EMR Serverless.

reach_probe.py URL HOST...      a feed, and hosts that speak TLS
"""

from __future__ import annotations

import json
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial

WAIT_S = 15  # an unreachable address does not answer at all


def main(url: str, *hosts: str) -> None:
    """Print one line of JSON: for each address whether it was reached, or why not."""
    seen = {"the feed": _tried(partial(urllib.request.urlopen, url, timeout=WAIT_S))}
    for host in hosts:
        seen[host] = _tried(partial(socket.create_connection, (host, 443), WAIT_S))
    sys.stdout.write(json.dumps({"reached": seen}) + "\n")


def _tried(reach: Callable[[], object]) -> str:
    try:
        reach()
    except (urllib.error.URLError, OSError) as problem:
        return f"no: {problem}"
    return "yes"


if __name__ == "__main__":
    main(*sys.argv[1:])
