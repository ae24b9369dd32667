"""stream: the ASGI app behind Lambda response streaming."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import MutableMapping
from typing import Any

import pytest

from functions.ingest.handler import handle as ingest
from tests.functions.cloud import Cloud, event

PATIENCE_S = 20.0
Message = MutableMapping[str, Any]


async def get(
    path: str, *, headers: dict[str, str], query: str = "", until: str = ""
) -> tuple[int, dict[str, str], str]:
    """The answer to a GET of the deployed app; the client leaves when it has read *until*."""
    app = importlib.reload(importlib.import_module("functions.stream.handler")).app
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent: list[Message] = []
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if until and until in _text(sent):
            left.set()

    async with asyncio.timeout(PATIENCE_S):
        await app(scope, receive, send)
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, _text(sent)


def _text(sent: list[Message]) -> str:
    return b"".join(message.get("body", b"") for message in sent).decode()


def test_a_stream_sends_blocks_from_the_cursor_on(cloud: Cloud) -> None:
    """Status and headers first, then the log as blocks of three lines."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    headers = {"accept": "text/event-stream", "last-event-id": "0000000000000000007fffff"}
    status, told, text = asyncio.run(get("/", headers=headers, until='"id":"2"'))

    assert status == 200
    assert told == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache, no-store, must-revalidate",
        "access-control-allow-origin": "*",
        "last-event-id": "0000000000000000007fffff",
    }
    blocks = [block.split("\n") for block in text.split("\n\n") if block]
    assert [block[1] for block in blocks] == ["event: insert", "event: insert", "event: delete"]
    assert all(
        [line.partition(":")[0] for line in block] == ["id", "event", "data"] for block in blocks
    )


def test_a_replication_is_asked_for_by_the_query(cloud: Cloud) -> None:
    """Reset, then everything, then live."""
    ingest(event("http_post"), None)
    status, _, text = asyncio.run(
        get(
            "/feeds/main/ops",
            headers={"accept": "*/*"},
            query="lastEventId=0&types=video",
            until="event: live",
        )
    )

    assert status == 200
    assert text.startswith("id: 1\nevent: reset\ndata: {}\n\n")
    assert text.index('"id":"x32"') < text.index("event: live")


@pytest.mark.parametrize(
    ("path", "headers", "query", "status", "code"),
    [
        ("/", {}, "", 406, "not_acceptable"),
        ("/", {"accept": "text/event-stream"}, "lastEventId=abcd", 400, "invalid_cursor"),
        ("/", {"accept": "text/event-stream"}, "types=a%00", 400, "invalid_filter"),
        ("/feeds/no/ops", {"accept": "text/event-stream"}, "", 404, "unknown_feed"),
        ("/nope", {"accept": "text/event-stream"}, "", 404, "unknown_path"),
    ],
)
def test_what_is_wrong_is_refused_in_json(
    cloud: Cloud, path: str, headers: dict[str, str], query: str, status: int, code: str
) -> None:
    """An error is a whole answer, never the start of a stream."""
    found, told, text = asyncio.run(get(path, headers=headers, query=query))

    assert (found, told["content-type"]) == (status, "application/json")
    assert f'"code": "{code}"' in text or f'"code":"{code}"' in text
