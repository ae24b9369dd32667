"""Print each event of a stream as a line of JSON: streams.py httpx_sse|sseclient|ours URL."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import httpx
from httpx_sse import connect_sse
from sseclient import SSEClient

from tidings.client import follow

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


def with_ours(url: str) -> Iterator[Seen]:
    address, _, cursor = url.partition("?lastEventId=")
    base, _, feed = address.removesuffix("/ops").rpartition("/feeds/")
    for event in follow(base, transport="sse", feed=feed, cursor=cursor):
        yield event.id, event.name, "{}"


if __name__ == "__main__":
    readers = {"httpx_sse": with_httpx_sse, "sseclient": with_sseclient, "ours": with_ours}
    read = readers[sys.argv[1]]
    for seen in read(sys.argv[2]):
        sys.stdout.write(json.dumps(dict(zip(("id", "event", "data"), seen, strict=True))) + "\n")
        sys.stdout.flush()
