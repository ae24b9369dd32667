"""Post an operation every 10 ms and read it from an event stream; report how long both took.

Each line of stdin ends a period. Its figures are then written to stdout as JSON, in milliseconds.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time

from bench.results import percentile

EVERY_S = 0.01
_FIELD = b'"sent_s":'


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 120)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _read(port: int, waits: list[float]) -> None:
    stream = _connect(port)
    stream.settimeout(None)
    stream.sendall(
        b"GET /ops?types=waiter HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n"
    )
    for line in stream.makefile("rb"):
        at = line.find(_FIELD)
        if at > 0:
            waits.append(time.monotonic() - float(line[at + len(_FIELD) :].split(b"}")[0]))


def _post(connection: socket.socket) -> float:
    began_s = time.monotonic()
    body = b'{"event":"update","type":"waiter","id":"a","data":{"sent_s":%.6f}}' % began_s
    connection.sendall(
        b"POST /ops HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = connection.recv(65536)
    if not answer.startswith(b"HTTP/1.1 204"):
        raise SystemExit(f"a post was answered with {answer[:200]!r}")
    return time.monotonic() - began_s


def _figures(waits: list[float]) -> list[float]:
    return [round(1000 * percentile(waits or [0.0], share), 1) for share in (0.5, 1)]


def main(port: int) -> None:
    posts: list[float] = []
    events: list[float] = []
    threading.Thread(target=_read, args=(port, events), daemon=True).start()
    time.sleep(0.3)
    connection = _connect(port)
    while True:
        wait_s = _post(connection)
        posts.append(wait_s)
        if select.select([sys.stdin], [], [], max(0.0, EVERY_S - wait_s))[0]:
            if not sys.stdin.readline():
                return
            sys.stdout.write(json.dumps([*_figures(posts), *_figures(events)]) + "\n")
            sys.stdout.flush()
            posts.clear()
            events.clear()


if __name__ == "__main__":
    main(int(sys.argv[1]))
