"""API Gateway's WebSocket events."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

OK: dict[str, Any] = {"statusCode": 200}


def connection_id(event: Mapping[str, Any]) -> str:
    found: str = event["requestContext"]["connectionId"]
    return found


def text(event: Mapping[str, Any]) -> str:
    """What the client sent; bytes that are no UTF-8 become U+FFFD and then fail as JSON."""
    body: str = event.get("body") or ""
    if event.get("isBase64Encoded"):
        return base64.b64decode(body).decode("utf-8", "replace")
    return body
