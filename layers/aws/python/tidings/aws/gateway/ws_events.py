"""API Gateway's WebSocket events."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.triton.registration import Listener, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.errors import Rejected

_FEED = "changefeed"
OK: dict[str, Any] = {"statusCode": 200}


def connection_id(event: Mapping[str, Any]) -> str:
    id_: str = event["requestContext"]["connectionId"]
    return id_


def listener(event: Mapping[str, Any]) -> Listener | None:
    """
    What a handshake says of its client: None for one of our own.

    A listener names its feed in the query parameter `changefeed`, or sends Accept-Version; a
    browser, which can send no header, says the version in the parameter `version`.

    Raises:
        InvalidRegistration: the version is none.
    """
    query = event.get("queryStringParameters") or {}
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    version = query.get("version", headers.get("accept-version"))
    if _FEED not in query and version is None:
        return None
    return Listener(version_of(version), query.get(_FEED) or DEFAULT_FEED)


def refused(error: Rejected) -> dict[str, Any]:
    """The answer to a handshake that says something wrong; a browser is not shown the body."""
    return {"statusCode": error.status, "body": json.dumps({"error": error.body()})}


def text(event: Mapping[str, Any]) -> str:
    """What the client sent; bytes that are no UTF-8 become U+FFFD and then fail as JSON."""
    body: str = event.get("body") or ""
    if event.get("isBase64Encoded"):
        return base64.b64decode(body).decode("utf-8", "replace")
    return body
