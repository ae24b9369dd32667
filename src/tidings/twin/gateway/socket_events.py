"""Events of the WebSocket API: `$connect`, `$default`, `$disconnect`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from tidings.twin import clock
from tidings.twin.options import STAGE

API_ID = "localws"
CONNECT, DEFAULT, DISCONNECT = "$connect", "$default", "$disconnect"

_EVENT_TYPES = {CONNECT: "CONNECT", DEFAULT: "MESSAGE", DISCONNECT: "DISCONNECT"}


@dataclass(frozen=True, slots=True)
class Caller:
    """The handshake of one connection."""

    connection_id: str
    connected_ms: int
    source_ip: str
    headers: Sequence[tuple[str, str]]
    query: str

    @property
    def user_agent(self) -> str:
        return next((v for k, v in self.headers if k.lower() == "user-agent"), "")

    @property
    def host(self) -> str:
        return next((v for k, v in self.headers if k.lower() == "host"), "localhost")


def connect(caller: Caller, *, now_ms: int) -> dict[str, object]:
    event = _event(caller, CONNECT, now_ms)
    event |= _lists("headers", "multiValueHeaders", _title(caller.headers))
    if caller.query:
        pairs = parse_qsl(caller.query, keep_blank_values=True)
        event |= _lists("queryStringParameters", "multiValueQueryStringParameters", pairs)
    return event


def message(caller: Caller, body: str, *, now_ms: int) -> dict[str, object]:
    event = _event(caller, DEFAULT, now_ms, messageId=new_id())
    event["body"] = body
    return event


def disconnect(caller: Caller, code: int, reason: str, *, now_ms: int) -> dict[str, object]:
    event = _event(caller, DISCONNECT, now_ms, disconnectStatusCode=code, disconnectReason=reason)
    event |= _lists("headers", "multiValueHeaders", [("Host", caller.host)])
    return event


def new_id() -> str:
    """Return a connection id in API Gateway's format: 15 characters and an equals sign."""
    return base64.urlsafe_b64encode(clock.new_token(11)).decode()


def _event(caller: Caller, route: str, now_ms: int, **more: object) -> dict[str, object]:
    context: dict[str, object] = {
        "routeKey": route,
        "eventType": _EVENT_TYPES[route],
        "extendedRequestId": new_id(),
        "requestTime": clock.access_time(now_ms),
        "messageDirection": "IN",
        "stage": STAGE,
        "connectedAt": caller.connected_ms,
        "requestTimeEpoch": now_ms,
        "identity": {"userAgent": caller.user_agent, "sourceIp": caller.source_ip},
        "requestId": new_id(),
        "domainName": caller.host,
        "connectionId": caller.connection_id,
        "apiId": API_ID,
        **more,
    }
    return {"requestContext": context, "isBase64Encoded": False}


def _lists(single: str, multiple: str, pairs: Sequence[tuple[str, str]]) -> dict[str, object]:
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {single: {name: listed[-1] for name, listed in values.items()}, multiple: values}


def _title(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Spell header names like API Gateway, whatever the client's spelling."""
    return [("-".join(part.capitalize() for part in k.split("-")), v) for k, v in headers]
