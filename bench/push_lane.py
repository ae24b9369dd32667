"""The process that `bench.push` measures: one lane's sender, and nothing else of the follower."""

from __future__ import annotations

import json
import os
import sys
import time

from tidings.aws.gateway.ws_sender import ApiGatewaySockets
from tidings.core.websocket.send import Delivery

from tests.core.scene import one_by_one
from tests.fakes import MemoryConnections, MemoryInbox, MemoryRegistry, MemorySubscriptions

BYTES = 1_000  # of a message
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "A" * 20,
    "AWS_SECRET_ACCESS_KEY": "s" * 40,
    "AWS_SESSION_TOKEN": "t" * 800,  # as long as those of a function: it is signed with each
    "AWS_DEFAULT_REGION": "eu-west-1",
}


def main(url: str, ca_file: str, messages: int) -> None:
    """Two turns: the first makes the connections, the second finds them. Each when it is told."""
    os.environ.update(CREDENTIALS)
    known = MemoryConnections(MemoryInbox(), MemorySubscriptions(), MemoryRegistry())
    sockets = ApiGatewaySockets(url, 10, ca_file or None)
    delivery = Delivery(sockets, known, _no_sleep, _no_count, sockets.exchange)
    text = "x" * BYTES
    turn = {f"L0SM9cOFvHcCI{number:x}=": [text] for number in range(messages)}
    for _ in range(2):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        started_s, started_cpu_s = time.time(), time.process_time()
        lost = delivery.send_each(turn, one_by_one)
        used = [started_s, time.time(), time.process_time() - started_cpu_s, len(lost)]
        sys.stdout.write(json.dumps(used) + "\n")
        sys.stdout.flush()


def _no_sleep(ms: int) -> None:
    raise AssertionError("an exchange waits by itself")


def _no_count(metric: str, value: int) -> None:
    """Nothing reads it."""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
