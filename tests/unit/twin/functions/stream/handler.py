"""Streams three blocks, the second one only after the client may have read the first."""

import asyncio
import json
from typing import Any


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    headers = {k.decode(): v.decode() for k, v in scope["headers"]}
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"text/event-stream")],
        }
    )
    first = {"query": scope["query_string"].decode(), "headers": headers}
    first["server"] = scope["server"]
    await send(_block(json.dumps(first), True))
    endless = b"endless" in scope["query_string"]
    for count in range(10_000 if endless else 2):
        await asyncio.sleep(0.05)
        await send(_block(str(count), True))
    await send(_block("end", False))


def _block(text: str, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": f"data: {text}\n\n".encode(), "more_body": more}
