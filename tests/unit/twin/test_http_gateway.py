"""The HTTP API: events of payload format 2.0, answers, and the requests that it refuses itself."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.twin.http_gateway import HttpGateway
from tests.twin.lambda_api import Answer, failure
from tidings.aws.config import deployment
from tidings.core import limits
from tidings.http.asgi import BODY_BYTES_MAX


class Api:
    """A gateway in this process; its functions return *answer* and record their events."""

    def __init__(self, answer: Answer, origins: tuple[str, ...] = ("*",)) -> None:
        self.answer = answer
        self.calls: list[tuple[str, Any]] = []
        routes = [route for route in deployment.HTTP_ROUTES if route.function != "stream"]
        self.gateway = HttpGateway(routes, self._invoke, {}, origins=origins)

    async def _invoke(self, name: str, payload: bytes) -> Answer:
        self.calls.append((name, json.loads(payload)))
        return self.answer

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.gateway.serve)
            async with httpx.AsyncClient(transport=transport, base_url="http://feed") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())


def answering(**answer: object) -> Api:
    return Api(Answer(json.dumps(answer).encode()))


def test_an_event_has_the_form_of_payload_2_0() -> None:
    """Every field that API Gateway sends for a POST with a query is there."""
    api = answering(statusCode=200)
    api.request(
        "POST",
        "/feeds/ma%69n/ops?a=1&b=x%20y&a=2",
        json={"x": 1},
        headers=[("X-Two", "1"), ("X-Two", "2"), ("Cookie", "a=1; b=2")],
    )

    [(function, event)] = api.calls
    assert function == "ingest"
    assert event["version"] == "2.0"
    assert event["routeKey"] == "POST /feeds/{feed}/ops"
    assert event["rawQueryString"] == "a=1&b=x%20y&a=2"
    assert event["queryStringParameters"] == {"a": "1,2", "b": "x y"}
    assert event["pathParameters"] == {"feed": "main"}
    assert event["headers"]["x-two"] == "1,2"
    assert event["headers"]["content-type"] == "application/json"
    assert "cookie" not in event["headers"]
    assert event["cookies"] == ["a=1", "b=2"]
    assert json.loads(event["body"]) == {"x": 1}
    assert event["isBase64Encoded"] is False
    context = event["requestContext"]
    assert context["http"]["method"] == "POST"
    assert context["http"]["sourceIp"] == "127.0.0.1"
    assert context["routeKey"] == event["routeKey"]
    assert context["stage"] == "$default"
    assert len(context["requestId"]) == 36
    assert context["timeEpoch"] > 1_700_000_000_000


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-ndjson", b"{}\n{}"),
        ("application/octet-stream", b"\x00\xff"),
        ("application/json", b"\xff"),
    ],
)
def test_what_is_not_text_arrives_in_base64(kind: str, body: bytes) -> None:
    """API Gateway hands over only its text types as text."""
    api = answering(statusCode=200)
    api.request("POST", "/", content=body, headers={"Content-Type": kind})

    [(_, event)] = api.calls
    assert event["isBase64Encoded"] is True
    assert base64.b64decode(event["body"]) == body


def test_an_answer_becomes_the_response() -> None:
    """Status, headers, cookies and a body in base64."""
    body = base64.b64encode(b"\x00x").decode()
    api = answering(
        statusCode=201, headers={"X-A": 1}, cookies=["c=1"], body=body, isBase64Encoded=True
    )
    response = api.request("POST", "/")

    assert response.status_code == 201
    assert response.headers["x-a"] == "1"
    assert response.headers["set-cookie"] == "c=1"
    assert response.content == b"\x00x"


def test_an_answer_without_status_is_a_json_body() -> None:
    """API Gateway takes it for the body of a 200."""
    response = answering(a=1).request("POST", "/")

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"a": 1}


@pytest.mark.parametrize(
    "answer", [failure("X", "y"), Answer(b"{"), Answer(b'{"statusCode":"many"}')]
)
def test_a_function_that_fails_is_a_500(answer: Answer) -> None:
    """The client learns nothing of the error itself."""
    response = Api(answer).request("POST", "/")

    assert response.status_code == 500
    assert response.json() == {"message": "Internal Server Error"}


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nowhere"), ("POST", "/feeds//ops"), ("POST", "/feeds/a/b/ops"), ("DELETE", "/ops")],
)
def test_what_no_route_takes_goes_to_the_default_one(method: str, path: str) -> None:
    """The function gets them and answers with the error (PROTOCOL 4.6), as on AWS."""
    api = answering(statusCode=404)
    api.request(method, path)

    ((name, event),) = api.calls
    assert name == "ingest"
    assert event["routeKey"] == "$default"
    assert (event["requestContext"]["http"]["method"], event["rawPath"]) == (method, path)


def test_a_body_above_the_limit_is_refused() -> None:
    """Ten megabytes pass, one byte more does not."""
    api = answering(statusCode=200)
    fits = api.request("POST", "/", content=b"x" * BODY_BYTES_MAX)
    large = api.request("POST", "/", content=b"x" * (BODY_BYTES_MAX + 1))

    assert fits.status_code == 200
    assert large.status_code == 413
    assert large.json()["error"]["code"] == "too_large"
    assert len(api.calls) == 1


def test_a_preflight_is_answered_without_a_function() -> None:
    """A browser may post from any origin."""
    api = answering(statusCode=200)
    response = api.request("OPTIONS", "/feeds/main/ops")

    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.headers["access-control-allow-methods"] == "POST, OPTIONS"
    assert "idempotency-key" in response.headers["access-control-allow-headers"]
    assert api.calls == []


@pytest.mark.parametrize("origin", ["https://a.example", "https://b.example"])
def test_a_preflight_names_the_origin_that_asks(origin: str) -> None:
    """This holds for each listed origin, and no other; caches get `Vary: Origin`."""
    api = Api(Answer(b"{}"), origins=("https://a.example", "https://b.example"))
    listed = api.request("OPTIONS", "/", headers={"Origin": origin})
    other = api.request("OPTIONS", "/", headers={"Origin": "https://c.example"})

    assert listed.headers["access-control-allow-origin"] == origin
    assert "authorization" in listed.headers["access-control-allow-headers"]
    assert "access-control-allow-origin" not in other.headers
    assert (listed.headers["vary"], other.headers["vary"]) == ("Origin", "Origin")


@pytest.mark.parametrize("deadline", ["BODY_S", "BODY_IDLE_S"])
def test_a_body_that_trickles_is_refused(monkeypatch: pytest.MonkeyPatch, deadline: str) -> None:
    """A whole body has a deadline, and each part of it; no function is invoked."""
    monkeypatch.setattr(limits, deadline, 0.05)
    api = answering(statusCode=200)

    async def trickling() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    slow = api.request("POST", "/", content=trickling())
    assert (slow.status_code, slow.headers["connection"]) == (408, "close")
    assert api.calls == []


def test_half_a_body_is_none() -> None:
    """The client disconnected between two lines: these lines are not the whole body."""
    api = answering(statusCode=200)
    came: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"one":1}\n', "more_body": True},
        {"type": "http.disconnect"},
    ]
    told: list[object] = []

    async def receive() -> dict[str, Any]:
        return came.pop(0)

    async def send(message: object) -> None:
        told.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    asyncio.run(api.gateway.serve(scope, receive, send))
    assert (came, told, api.calls) == ([], [], [])
