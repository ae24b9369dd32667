"""API Gateway's HTTP events (payload 2.0) as requests, and answers as it takes them."""

from __future__ import annotations

import base64
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tidings.core.tracing import XRAY_HEADER
from tidings.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.http.request import Answer


def request_from(event: Mapping[str, Any], prefix: str, xray: str = "") -> Request:
    """
    *prefix* is where a custom domain serves the feed; below it the feed is at the root.

    *xray* is what X-Ray calls the invocation that serves it, where it has an eye on it.
    """
    http = event["requestContext"]["http"]
    body = event.get("body") or ""
    return Request(
        method=http["method"],
        path=_below(http["path"], prefix),
        route=event["routeKey"],
        headers=(event.get("headers") or {}) | ({XRAY_HEADER: xray} if xray else {}),
        parameters=event.get("pathParameters") or {},
        query=event.get("queryStringParameters") or {},
        body=base64.b64decode(body) if event.get("isBase64Encoded") else body.encode(),
        query_string=event.get("rawQueryString") or "",
    )


def response_from(answer: Answer) -> dict[str, Any]:
    """An answer as API Gateway takes it."""
    response = {"statusCode": answer.status, "headers": dict(answer.headers)}
    return response if answer.status == HTTPStatus.NO_CONTENT else response | {"body": answer.body}


def _below(path: str, prefix: str) -> str:
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        return path.removeprefix(prefix) or "/"
    return path
