"""Serve `GET /asyncapi.json`, which describes streams, WebSockets and webhooks in AsyncAPI 3.0.

OpenAPI describes requests and their answers; this document describes the messages that follow. Both
use the schemas of `schemas`.
"""

from __future__ import annotations

import re
from typing import Any

from tidings.core import limits
from tidings.core.model.envelopes import CLOUDEVENTS, FORMATS, TIDINGS
from tidings.core.model.events import GZIP
from tidings.core.model.feeds import NAME
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.core.triton.registration import V1, V2
from tidings.core.version import VERSION
from tidings.core.websocket.session import Act, State
from tidings.http.log_routes import STREAM_QUERY
from tidings.http.openapi import SCHEMAS
from tidings.http.schemas import (
    EVENTS,
    EXAMPLE_CURSOR,
    EXAMPLE_FEED,
    EXAMPLE_KIND,
    EXAMPLE_OBJECT,
    FILTER,
    ITEM_KIND,
    Schema,
    list_of,
    one_of,
    record,
    ref,
    request,
)

_STREAM, _JSON = "text/event-stream", "application/json"
_PLAIN: Schema = {"type": "string"}
_BOOLEAN: Schema = {"type": "boolean"}
_DESCRIPTION = (
    "docs/PROTOCOL.md has the rules; numbers in parentheses are sections of it. "
    "`/openapi.json` describes the requests: posting, named consumers with their leases and "
    "acknowledgements (14), and the sums with which a consumer verifies its copy (20)."
)
# The address of the WebSocket of a server; a stage has one of its own, without a path.
SOCKET_PATH = "/ws"

_SUBSCRIPTION: Schema = {
    "feed": {"type": "string", "pattern": f"^{NAME.pattern}$", "default": "main"},
    **FILTER,
    "leave": _BOOLEAN,
    "trace": _BOOLEAN,
    "encoding": one_of(GZIP),
    "password": {**_PLAIN, "description": "a password or a key (10, 17)"},
}
_SUBSCRIBE_EXAMPLE = {
    "action": Act.SUBSCRIBE.value,
    "feed": EXAMPLE_FEED,
    "types": ["order"],
    "from": "0",
}
_REGISTERED: Schema = {"instance": _PLAIN, "service": {}, "password": _PLAIN}


def _action(act: Act) -> Schema:
    example = {"action": act.value}
    return request({"action": {"const": act.value}}, "action", example=example)


def _reply(kind: str, fields: Schema, **example: str) -> Schema:
    return record({"reply": {"const": kind}, **fields}, example={"reply": kind, **example})


# The schemas of messages that no request or response of OpenAPI has.
_MESSAGES: dict[str, Schema] = {
    "Subscribe": request(
        {
            "action": {"const": Act.SUBSCRIBE.value},
            **_SUBSCRIPTION,
            "from": {**_PLAIN, "description": "a cursor (5); without it, the end of the log"},
        },
        "action",
        example=_SUBSCRIBE_EXAMPLE,
    ),
    "Resume": request(
        {
            "action": {"const": Act.RESUME.value},
            **_SUBSCRIPTION,
            "cursor": {**_PLAIN, "minLength": 1},
        },
        *("action", "cursor"),
        example={"action": Act.RESUME.value, "feed": EXAMPLE_FEED, "cursor": EXAMPLE_CURSOR},
    ),
    "Unsubscribe": _action(Act.UNSUBSCRIBE),
    "Ping": _action(Act.PING),
    "KeepAlive": _action(Act.KEEP_ALIVE),
    "Subscribed": _reply(
        "subscribed", {"feed": _PLAIN, "cursor": _PLAIN}, feed=EXAMPLE_FEED, cursor=EXAMPLE_CURSOR
    ),
    "Unsubscribed": _reply("unsubscribed", {}),
    "Pong": _reply(
        "pong", {"state": one_of(*(state.value for state in State))}, state=State.LIVE.value
    ),
    "Events": record(
        {"events": list_of(ref(EVENTS[TIDINGS])), "cursor": _PLAIN},
        "cursor",
        example={
            "events": [{"id": EXAMPLE_CURSOR, "event": "update", "data": EXAMPLE_OBJECT}],
            "cursor": EXAMPLE_CURSOR,
        },
    ),
    "StreamMark": {"type": "object", "maxProperties": 0, "examples": [{}]},
    f"RegistrationV{V1}": request(
        {**_REGISTERED, "changeKind": ITEM_KIND},
        *("instance", "changeKind"),
        example={"instance": "i-1", "service": "dns", "changeKind": EXAMPLE_KIND},
    ),
    f"RegistrationV{V2}": request(
        {**_REGISTERED, "resources": list_of(ITEM_KIND)},
        *("instance", "resources"),
        example={"instance": "i-1", "service": "dns", "resources": [EXAMPLE_KIND]},
    ),
    "RegisteredResources": record(
        {"bootstrapRoutes": list_of(ref("Resource"))},
        example={"bootstrapRoutes": [{**EXAMPLE_KIND, "bootstrapRoute": "/vms"}]},
    ),
    "SentItem": record(
        {
            "changeKind": ITEM_KIND,
            "changedResourceId": _PLAIN,
            "published": {**_PLAIN, "description": "milliseconds since 1970"},
            "event": one_of("insert", "delete"),
        },
        "event",
        example={
            "changeKind": EXAMPLE_KIND,
            "changedResourceId": "vm-7",
            "published": "1795805973363",
        },
    ),
    "Refusal": {**_PLAIN, "examples": ["unknown resource: vm"]},
}
# The messages of a WebSocket, by name: those of clients, then those of the server.
_FROM_CLIENT = {
    "subscribe": ("Subscribe", "follow a feed"),
    "resume": ("Resume", "follow a feed again, from a cursor"),
    "unsubscribe": ("Unsubscribe", "end the subscription"),
    "ping": ("Ping", "ask for the state of the connection"),
    "keepalive": ("KeepAlive", "keep a silent connection open; it is not answered (8.7)"),
    "registrationV1": (f"RegistrationV{V1}", "register a listener, first version (13.5)"),
    "registrationV2": (f"RegistrationV{V2}", "register a listener, second version (13.5)"),
}
_FROM_SERVER = {
    "subscribed": ("Subscribed", "the subscription is stored"),
    "unsubscribed": ("Unsubscribed", "the subscription has ended"),
    "pong": ("Pong", "the state of the connection (8.7)"),
    "events": ("Events", "events, and the cursor up to which everything was sent (8.4)"),
    "error": ("Error", "a message was refused, or the connection ends (8.2)"),
    "registeredV1": ("Resource", "the registration is stored, first version"),
    "registeredV2": ("RegisteredResources", "the registration is stored, second version"),
    "item": ("SentItem", "an operation on a registered resource (13.7)"),
    "refused": ("Refusal", "the registration is refused (13.6); the connection ends"),
}
# The answers to the messages of clients.
_REPLIES = {
    "subscribe": ("subscribed", "error"),
    "resume": ("subscribed", "error"),
    "unsubscribe": ("unsubscribed", "error"),
    "ping": ("pong", "error"),
    "keepalive": (),
    "registrationV1": ("registeredV1", "refused"),
    "registrationV2": ("registeredV2", "refused"),
}


def document(base_url: str) -> dict[str, Any]:
    """Return the document of the host at *base_url*, which ends with the path of the deployment."""
    scheme, _, rest = base_url.partition("://")
    host, slash, path = rest.partition("/")
    http = {"host": host, "protocol": scheme, "pathname": slash + path or "/"}
    secure = "s" if scheme == "https" else ""
    security = [{"$ref": f"#/components/securitySchemes/{name}"} for name in ("password", "key")]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Tidings",
            "version": VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "MIT"},
        },
        "defaultContentType": _JSON,
        "servers": {
            "http": {**http, "description": "streams; a stage has another address (7.4)"},
            "socket": {
                "host": host,
                "protocol": f"ws{secure}",
                "pathname": slash + path.rstrip("/") + SOCKET_PATH,
                "description": "WebSockets; a stage has an address of its own",
            },
        },
        "channels": _channels(),
        "operations": {**_stream_operations(security), **_socket_operations(), **_webhooks()},
        "components": {
            "schemas": _reachable(),
            "messages": _messages(),
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "key": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _channels() -> dict[str, Any]:
    feed = {"feed": {"description": "the name of a feed", "examples": [EXAMPLE_FEED]}}
    stream = [name for name in _messages() if name.startswith(("sse", "line"))]
    hooks = [name for name in _messages() if name.startswith("webhook")]
    query = {"changefeed": _PLAIN, "version": _PLAIN}
    handshake = {"method": "GET", "query": {"type": "object", "properties": query}}
    return {
        "stream": {
            "address": "/feeds/{feed}/ops",
            "title": "Server-Sent Events, or lines of JSON",
            "description": "One connection follows one feed (7).",
            "servers": [{"$ref": "#/servers/http"}],
            "parameters": feed,
            "messages": _of_channel(stream),
        },
        "socket": {
            "address": "/",
            "title": "WebSocket",
            "description": "A connection has one subscription at a time (8), or a listener (13).",
            "servers": [{"$ref": "#/servers/socket"}],
            "messages": _of_channel([*_FROM_CLIENT, *_FROM_SERVER]),
            "bindings": {"ws": {**handshake, "bindingVersion": "0.1.0"}},
        },
        "webhook": {
            "address": None,
            "title": "Webhook",
            "description": "The server posts to the URL of the webhook (19).",
            "messages": _of_channel(hooks),
        },
    }


def _of_channel(names: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _on(channel: str, *names: str) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names]


def _messages() -> dict[str, Any]:
    found: dict[str, Any] = {
        "sseOperation": _message(
            "FeedObject",
            "an operation, in the data of a block; its name is that of the event (7.3)",
            _STREAM,
            headers=_BLOCK,
        ),
        "sseMark": _message("StreamMark", "`reset` or `live` (6.2)", _STREAM, headers=_BLOCK),
    }
    for name in FORMATS:
        schema, of = EVENTS[name], f"an event in the format `{name}` (6.10)"
        if name != TIDINGS:
            text = f"{of}, in the data of a block"
            found[f"sse{schema}"] = _message(schema, text, _STREAM, headers=_BLOCK)
        found[f"line{schema}"] = _message(schema, f"{of}, on a line (7.6)", NDJSON_TYPE)
        kind = "application/cloudevents+json" if name == CLOUDEVENTS else _JSON
        text = f"{of}, in the body of a request (19.3)"
        found[f"webhook{schema}"] = _message(schema, text, kind, headers=_SIGNATURE)
    for name, (schema, text) in (_FROM_CLIENT | _FROM_SERVER).items():
        found[name] = _message(schema, text, _JSON)
    return found


_BLOCK = record(
    {"id": _PLAIN, "event": _PLAIN, "traceparent": _PLAIN},
    "traceparent",
    description="the fields of the block in addition to `data`",
)
_SIGNATURE = record(
    {name: _PLAIN for name in ("webhook-id", "webhook-timestamp", "webhook-signature")},
    description="Standard Webhooks (19.4)",
)


def _message(schema: str, summary: str, kind: str, headers: Schema | None = None) -> dict[str, Any]:
    """Return a message with a payload of *schema*, and with the examples of that."""
    known = _MESSAGES.get(schema) or SCHEMAS[schema]
    examples = [{"payload": example} for example in known.get("examples", ())]
    return {
        "summary": summary,
        "contentType": kind,
        **({"headers": headers} if headers else {}),
        "payload": ref(schema),
        **({"examples": examples} if examples and not headers else {}),
    }


def _stream_operations(security: list[dict[str, str]]) -> dict[str, Any]:
    query = {
        name: {key: value for key, value in schema.items() if key != "allowEmptyValue"}
        for name, schema in STREAM_QUERY.items()
    }
    binding = {"method": "GET", "query": {"type": "object", "properties": query}}
    channel = {"$ref": "#/channels/stream"}
    bindings = {"http": {**binding, "bindingVersion": "0.3.0"}}
    sent = {"sendEvents": ("sse", _STREAM), "sendLines": ("line", NDJSON_TYPE)}
    return {
        name: {
            "action": "send",
            "channel": channel,
            "summary": f"send events; the request accepts `{kind}`",
            "messages": _on("stream", *(each for each in _messages() if each.startswith(prefix))),
            "security": security,
            "bindings": bindings,
        }
        for name, (prefix, kind) in sent.items()
    }


def _socket_operations() -> dict[str, Any]:
    channel = {"$ref": "#/channels/socket"}
    received = {
        f"receive{name[0].upper()}{name[1:]}": {
            "action": "receive",
            "channel": channel,
            "summary": summary,
            "messages": _on("socket", name),
            **(
                {"reply": {"channel": channel, "messages": _on("socket", *_REPLIES[name])}}
                if _REPLIES[name]
                else {}
            ),
        }
        for name, (_, summary) in _FROM_CLIENT.items()
    }
    pushed = {
        "action": "send",
        "channel": channel,
        "summary": "send events to a client with a subscription, items to a listener",
        "messages": _on("socket", "events", "error", "item"),
    }
    return {**received, "pushEvents": pushed}


def _webhooks() -> dict[str, Any]:
    names = [name for name in _messages() if name.startswith("webhook")]
    return {
        "callWebhook": {
            "action": "send",
            "channel": {"$ref": "#/channels/webhook"},
            "summary": f"post an event; any 2xx within {limits.WEBHOOK_S} s accepts it",
            "messages": _on("webhook", *names),
            "bindings": {"http": {"method": "POST", "bindingVersion": "0.3.0"}},
        }
    }


def _reachable() -> dict[str, Schema]:
    """Return the schemas of the messages, and all that these refer to."""
    found: dict[str, Schema] = {}
    wanted = {message["payload"]["$ref"].rpartition("/")[2] for message in _messages().values()}
    while wanted:
        name = wanted.pop()
        found[name] = _MESSAGES.get(name) or SCHEMAS[name]
        wanted |= set(re.findall(r"#/components/schemas/(\w+)", repr(found[name]))) - {*found}
    return dict(sorted(found.items()))
