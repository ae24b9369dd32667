"""Convert API Gateway's events of WebSockets."""

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


def peer(event: Mapping[str, Any]) -> str:
    """Return the address that opened the connection."""
    address: str = event["requestContext"]["identity"]["sourceIp"]
    return address


def listener(event: Mapping[str, Any]) -> Listener | None:
    """Return the listener that the handshake declares, or None; see `listener_of`.

    Raises:
        InvalidRegistration: the handshake contains an invalid version.
    """
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    return listener_of(event.get("queryStringParameters") or {}, headers)


def refuse(error: Rejected) -> dict[str, Any]:
    """Return the answer to an invalid handshake. Browsers do not show its body to the page."""
    return {"statusCode": error.status, "body": json.dumps({"error": error.body()})}


def text(event: Mapping[str, Any]) -> str:
    """Return the message of the client. Invalid UTF-8 is replaced by U+FFFD, without an error."""
    body: str = event.get("body") or ""
    if event.get("isBase64Encoded"):
        return base64.b64decode(body).decode("utf-8", "replace")
    return body
