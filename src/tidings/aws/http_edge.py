"""The handlers of functions that answer HTTP requests.

They convert API Gateway's events (payload format 2.0) to requests, and answers to API Gateway's
responses.
"""

from __future__ import annotations

import base64
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tidings.aws.config.settings import sampled_call
from tidings.aws.request_log import key_in, write
from tidings.aws.stage import prepare_snapshot, stage
from tidings.aws.telemetry import edge, request_id
from tidings.core.tracing import XRAY_HEADER
from tidings.http.answers import respond
from tidings.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.http.request import Answer

    Handler = Callable[[dict[str, Any], object], dict[str, Any]]


def http_edge(function: str) -> Handler:
    """Return the handler of *function*, which serves its routes in `tidings.http.routes`.

    The endpoint is built when the first request arrives.
    """
    prepare_snapshot(lambda: stage().endpoint(function))

    @edge
    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        here = stage()
        request = request_from(event, here.settings.url_prefix, sampled_call())
        key = key_in(request.headers)
        if key:
            peer, invocation = event["requestContext"]["http"]["sourceIp"], request_id(context)
            proxies = here.settings.address_proxies
            write("key", invocation, proxies, peer, headers=request.headers, key=key)
        answer = respond(here.endpoint(function), request, here.settings.cors_origins)
        return response_from(answer)

    return handle


def request_from(event: Mapping[str, Any], prefix: str, xray: str = "") -> Request:
    """Return the request in *event*.

    *prefix* is the path under which a custom domain serves the feed. It is removed from the path of
    the request. *xray* is X-Ray's id of the current invocation; "" if the invocation is not
    sampled.
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
