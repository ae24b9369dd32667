"""Convert API Gateway's HTTP events (payload 2.0) to requests, and answers to its responses."""

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
    Return the request in *event*.

    *prefix* is the path of a custom domain under which the feed is served; it is removed. *xray* is
    X-Ray's id of the current invocation, if it is sampled.
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
    """Return *answer* in the format of API Gateway."""
    response = {"statusCode": answer.status, "headers": dict(answer.headers)}
    return response if answer.status == HTTPStatus.NO_CONTENT else response | {"body": answer.body}


def _below(path: str, prefix: str) -> str:
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        return path.removeprefix(prefix) or "/"
    return path
