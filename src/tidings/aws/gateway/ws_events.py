"""API Gateway's WebSocket events."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tidings.core.triton.registration import listener_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.errors import Rejected
    from tidings.core.triton.registration import Listener

OK: dict[str, Any] = {"statusCode": 200}


def connection_id(event: Mapping[str, Any]) -> str:
    id_: str = event["requestContext"]["connectionId"]
    return id_


def listener(event: Mapping[str, Any]) -> Listener | None:
    """
    As `listener_of` says of the handshake.

    Raises:
        InvalidRegistration: it says a version that is none.
    """
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    return listener_of(event.get("queryStringParameters") or {}, headers)


def refused(error: Rejected) -> dict[str, Any]:
    """The answer to a handshake that says something wrong; a browser is not shown the body."""
    return {"statusCode": error.status, "body": json.dumps({"error": error.body()})}


def text(event: Mapping[str, Any]) -> str:
    """What the client sent; bytes that are no UTF-8 become U+FFFD and then fail as JSON."""
    body: str = event.get("body") or ""
    if event.get("isBase64Encoded"):
        return base64.b64decode(body).decode("utf-8", "replace")
    return body
