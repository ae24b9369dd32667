"""Find the actions of a signed request to AWS, which its service looks up in policies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.awsrequest import AWSRequest

from tests.iam.policy import Call

SOCKETS = "sockets"  # in place of the id of the WebSocket API: no address here contains it
_SOCKET_STAGE = "live"
_INVOCATION = re.compile(r"/2015-03-31/functions/([^/]+)/invocations")
_CONNECTION = re.compile(r".*/@connections/(.+)")
_KEY = re.compile(r"<Key>([^<]*)</Key>")  # in the body of DeleteObjects
_S3_OF_OBJECTS = {
    "GET": "GetObject",
    "HEAD": "GetObject",
    "PUT": "PutObject",
    "DELETE": "DeleteObject",
}


def calls_of(service: str, region: str, account: str, request: AWSRequest) -> list[Call]:
    """What *request* needs.

    An unknown service or kind of request becomes an action that no policy allows.
    """
    read = _SERVICES.get(service)
    place = f"{service}:{region}:{account}"
    if read is None:
        return [Call(f"{service}:?", str(request.url))]
    return list(read(place, request))


def _dynamodb(place: str, request: AWSRequest) -> Iterator[Call]:
    action = str(request.headers["X-Amz-Target"]).partition(".")[2]
    sent: dict[str, Any] = json.loads(request.data or b"{}")
    if action.startswith("Transact"):
        for part in sent["TransactItems"]:
            for kind, each in part.items():
                name = "ConditionCheckItem" if kind == "ConditionCheck" else f"{kind}Item"
                yield Call(f"dynamodb:{name}", _table(place, each["TableName"]))
        return
    for table in sent.get("RequestItems", [sent.get("TableName", "")]):
        yield Call(f"dynamodb:{action}", _table(place, table, sent.get("IndexName")))


def _table(place: str, name: str, index: str | None = None) -> str:
    """Tables of other accounts are named by their ARN."""
    arn = name if name.startswith("arn:") else f"arn:aws:{place}:table/{name}"
    return f"{arn}/index/{index}" if index else arn


def _lambda(place: str, request: AWSRequest) -> Iterator[Call]:
    """Yield the call of Lambda; the qualifier of a function is part of the resource."""
    url = urlsplit(str(request.url))
    found = _INVOCATION.fullmatch(url.path)
    action = "lambda:InvokeFunction" if found and request.method == "POST" else "lambda:?"
    name = ":".join([unquote(found[1]) if found else "", *parse_qs(url.query).get("Qualifier", [])])
    yield Call(action, f"arn:aws:{place}:function:{name}")


def _execute_api(place: str, request: AWSRequest) -> Iterator[Call]:
    found = _CONNECTION.fullmatch(urlsplit(str(request.url)).path)
    action = "execute-api:ManageConnections" if found else "execute-api:?"
    path = f"{SOCKETS}/{_SOCKET_STAGE}/{request.method}/@connections/{found[1] if found else ''}"
    yield Call(action, f"arn:aws:{place}:{path}")


def _s3(place: str, request: AWSRequest) -> Iterator[Call]:
    """Yield the call of S3, by path (`host/bucket/key`) or by host (`bucket.s3...`)."""
    url = urlsplit(str(request.url))
    host, at, _ = (url.hostname or "").partition(".s3.")
    path = unquote(url.path).lstrip("/")
    bucket, _, key = (host, "", path) if at else path.partition("/")
    method = str(request.method)
    if key:
        action = _S3_OF_OBJECTS.get(method, f"?{method}")
        yield Call(f"s3:{action}", f"arn:aws:s3:::{bucket}/{key}")
        return
    given = {k: [str(v)] for k, v in dict(request.params or {}).items()}
    query = parse_qs(url.query, keep_blank_values=True) | given
    if method == "POST" and "delete" in query:
        for each in _KEY.findall(bytes(request.data or b"").decode()):
            yield Call("s3:DeleteObject", f"arn:aws:s3:::{bucket}/{each}")
        return
    listed = method == "GET" and "list-type" in query
    context = {"s3:prefix": tuple(query.get("prefix", [""]))}
    yield Call("s3:ListBucket" if listed else f"s3:?{method}", f"arn:aws:s3:::{bucket}", context)


_SERVICES: dict[str, Callable[[str, AWSRequest], Iterator[Call]]] = {
    "dynamodb": _dynamodb,
    "lambda": _lambda,
    "execute-api": _execute_api,
    "s3": _s3,
}
