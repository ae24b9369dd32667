"""Print each event of a stream as a line of JSON: streams.py httpx_sse|sseclient URL."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import httpx
from httpx_sse import connect_sse
from sseclient import SSEClient

Seen = tuple[str, str, str]


def with_httpx_sse(url: str) -> Iterator[Seen]:
    with httpx.Client(timeout=None) as client, connect_sse(client, "GET", url) as source:
        for event in source.iter_sse():
            yield event.id, event.event, event.data


def with_sseclient(url: str) -> Iterator[Seen]:
    headers = {"Accept": "text/event-stream"}
    with httpx.stream("GET", url, headers=headers, timeout=None) as answer:
        for event in SSEClient(answer.iter_bytes()).events():
            yield str(event.id), event.event, event.data


if __name__ == "__main__":
    read = {"httpx_sse": with_httpx_sse, "sseclient": with_sseclient}[sys.argv[1]]
    for seen in read(sys.argv[2]):
        sys.stdout.write(json.dumps(dict(zip(("id", "event", "data"), seen, strict=True))) + "\n")
        sys.stdout.flush()
