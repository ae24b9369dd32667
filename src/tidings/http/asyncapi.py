"""Serve `GET /asyncapi.json`, which describes streams, WebSockets and webhooks in AsyncAPI 3.0.

OpenAPI describes requests and their answers; this document describes the messages that follow.
`core.websocket.receive` and `core.triton.registration` parse the messages of clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tidings.core import limits
from tidings.core.model.envelopes import CLOUDEVENTS, FORMATS, TIDINGS
from tidings.core.model.events import GZIP, SWITCHES
from tidings.core.model.feeds import DEFAULT_FEED, NAME
from tidings.core.model.filters import FIELDS
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.core.version import VERSION
from tidings.core.websocket.session import Act, State
from tidings.http import wire
from tidings.http.endpoints.browse import DeclaredResource
from tidings.http.json_schema import declared_schemas, name_of, object_schema, schema_of
from tidings.http.log_routes import STREAM, STREAM_QUERY, ChangeKind, Parent
from tidings.http.schemas import EVENTS, Error, FeedEvent
from tidings.http.wire import JSON, PLAIN, UNSET, Example, FeedObject, Fields, Kind, Name, Unset

if TYPE_CHECKING:
    from collections.abc import Iterable

_DESCRIPTION = (
    "docs/PROTOCOL.md has the rules; numbers in parentheses are sections of it. "
    "`/openapi.json` describes the requests: posting, named consumers with their leases and "
    "acknowledgements (14), and the sums with which a consumer verifies its copy (20)."
)
# The address of the WebSocket of a server; a stage has one of its own, without a path.
SOCKET_PATH = "/ws"

_FEED = Kind({**PLAIN, "pattern": f"^{NAME.pattern}$", "default": DEFAULT_FEED})

# The messages of clients.


class SubscriptionFields(Fields):
    """The fields that `subscribe` and `resume` share."""

    feed: Annotated[str, _FEED, Example(wire.EXAMPLE_FEED)] | Unset = UNSET
    encoding: Annotated[str, wire.one_of(GZIP)] | Unset = UNSET
    password: Annotated[str, "a password or a key (10, 17)"] | Unset = UNSET
    __annotations__ |= {
        **dict.fromkeys(FIELDS, Annotated[list[Parent], wire.most(limits.FILTER_VALUES_MAX)]),
        **{name: Annotated[bool, text] for name, text in SWITCHES.items()},
    }
    locals().update(dict.fromkeys((*FIELDS, *SWITCHES), UNSET))


class Subscribe(
    SubscriptionFields,
    example={
        "action": Act.SUBSCRIBE.value,
        "feed": wire.EXAMPLE_FEED,
        "types": ["order"],
        "from": "0",
    },
):
    action: Annotated[str, wire.const(Act.SUBSCRIBE.value)]
    from_: Annotated[str, "a cursor (5); without it, the end of the log", Example("0")] | Unset = (
        UNSET
    )


class Resume(SubscriptionFields):
    action: Annotated[str, wire.const(Act.RESUME.value)]
    cursor: Annotated[str, Kind({**PLAIN, "minLength": 1}), Example(wire.EXAMPLE_CURSOR)]


class Unsubscribe(Fields):
    action: Annotated[str, wire.const(Act.UNSUBSCRIBE.value)]


class Ping(Fields):
    action: Annotated[str, wire.const(Act.PING.value)]


class KeepAlive(Fields):
    action: Annotated[str, wire.const(Act.KEEP_ALIVE.value)]


class RegistrationFields(Fields):
    """The fields that both versions of a registration share."""

    instance: Annotated[str, Example("i-1")]
    service: Annotated[Any, Example("dns")] = UNSET
    password: str | Unset = UNSET


class RegistrationV1(RegistrationFields):
    changeKind: ChangeKind


class RegistrationV2(RegistrationFields):
    resources: list[ChangeKind]


# The messages of the server.


class Subscribed(Fields):
    reply: Annotated[str, wire.const("subscribed")]
    feed: Annotated[str, Example(wire.EXAMPLE_FEED)]
    cursor: Annotated[str, Example(wire.EXAMPLE_CURSOR)]


class Unsubscribed(Fields):
    reply: Annotated[str, wire.const("unsubscribed")]


class Pong(Fields):
    reply: Annotated[str, wire.const("pong")]
    state: Annotated[str, wire.one_of(*(each.value for each in State)), Example(State.LIVE.value)]


class Events(Fields):
    events: list[FeedEvent]
    cursor: Annotated[str, Example(wire.EXAMPLE_CURSOR)] | Unset = UNSET


class RegisteredResources(Fields):
    bootstrapRoutes: list[DeclaredResource]


class SentItem(Fields):
    changeKind: ChangeKind
    changedResourceId: Annotated[str, Example("vm-7")]
    published: Annotated[str, "milliseconds since 1970", Example(str(wire.EXAMPLE_MS))]
    event: Annotated[str, wire.one_of("insert", "delete")] | Unset = UNSET


Refusal = Annotated[str, Name("Refusal"), Example("unknown resource: vm")]


class BlockFields(
    Fields,
    name="",
    keywords={"description": "the fields of the block in addition to `data`"},
):
    id: str
    event: str
    traceparent: str | Unset = UNSET


class Signature(Fields, name="", keywords={"description": "Standard Webhooks (19.4)"}):
    __annotations__ = dict.fromkeys(("webhook-id", "webhook-timestamp", "webhook-signature"), str)


StreamMark = Annotated[
    dict[str, Any], Kind({"type": "object", "maxProperties": 0}), Name("StreamMark")
]


class Message(NamedTuple):
    """A message with a *payload*. The server answers one of a client with one of *replies*."""

    payload: Any
    summary: str
    content_type: str = JSON
    headers: type[Fields] | None = None
    replies: tuple[str, ...] = ()


_STREAM = {
    "sseOperation": Message(
        FeedObject,
        "an operation, in the data of a block; its name is that of the event (7.3)",
        STREAM,
        BlockFields,
    ),
    "sseMark": Message(StreamMark, "`reset` or `live` (6.2)", STREAM, BlockFields),
}
_WEBHOOK = {}
for _format in FORMATS:
    _event, _text = EVENTS[_format], f"an event in the format `{_format}` (6.10)"
    _name, _of_block = _event.schema_name, f"{_text}, in the data of a block"
    if _format != TIDINGS:
        _STREAM[f"sse{_name}"] = Message(_event, _of_block, STREAM, BlockFields)
    _STREAM[f"line{_name}"] = Message(_event, f"{_text}, on a line (7.6)", NDJSON_TYPE)
    _WEBHOOK[f"webhook{_name}"] = Message(
        _event,
        f"{_text}, in the body of a request (19.3)",
        "application/cloudevents+json" if _format == CLOUDEVENTS else JSON,
        Signature,
    )
_SUBSCRIBING = ("subscribed", "error")
_FROM_CLIENT = {
    "subscribe": Message(Subscribe, "follow a feed", replies=_SUBSCRIBING),
    "resume": Message(Resume, "follow a feed again, from a cursor", replies=_SUBSCRIBING),
    "unsubscribe": Message(Unsubscribe, "end the subscription", replies=("unsubscribed", "error")),
    "ping": Message(Ping, "ask for the state of the connection", replies=("pong", "error")),
    "keepalive": Message(KeepAlive, "keep a silent connection open; it is not answered (8.7)"),
    "registrationV1": Message(
        RegistrationV1,
        "register a listener, first version (13.5)",
        replies=("registeredV1", "refused"),
    ),
    "registrationV2": Message(
        RegistrationV2,
        "register a listener, second version (13.5)",
        replies=("registeredV2", "refused"),
    ),
}
_FROM_SERVER = {
    "subscribed": Message(Subscribed, "the subscription is stored"),
    "unsubscribed": Message(Unsubscribed, "the subscription has ended"),
    "pong": Message(Pong, "the state of the connection (8.7)"),
    "events": Message(Events, "events, and the cursor up to which everything was sent (8.4)"),
    "error": Message(Error, "a message was refused, or the connection ends (8.2)"),
    "registeredV1": Message(DeclaredResource, "the registration is stored, first version"),
    "registeredV2": Message(RegisteredResources, "the registration is stored, second version"),
    "item": Message(SentItem, "an operation on a registered resource (13.7)"),
    "refused": Message(Refusal, "the registration is refused (13.6); the connection ends"),
}
MESSAGES = {**_STREAM, **_WEBHOOK, **_FROM_CLIENT, **_FROM_SERVER}


def document(base_url: str) -> dict[str, Any]:
    """Return the document of the host at *base_url*, which ends with the path of the deployment."""
    scheme, _, rest = base_url.partition("://")
    host, slash, path = rest.partition("/")
    http = {"host": host, "protocol": scheme, "pathname": slash + path or "/"}
    schemas = declared_schemas(each.payload for each in MESSAGES.values())
    secure = "s" if scheme == "https" else ""
    security = [{"$ref": f"#/components/securitySchemes/{name}"} for name in ("password", "key")]
    webhook = {
        "action": "send",
        "channel": {"$ref": "#/channels/webhook"},
        "summary": f"post an event; any 2xx within {limits.WEBHOOK_S} s accepts it",
        "messages": _on("webhook", *_WEBHOOK),
        "bindings": {"http": {"method": "POST", "bindingVersion": "0.3.0"}},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Tidings",
            "version": VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "MIT"},
        },
        "defaultContentType": JSON,
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
        "operations": {
            **_stream_operations(security),
            **_socket_operations(),
            "callWebhook": webhook,
        },
        "components": {
            "schemas": schemas,
            "messages": {name: _message(each, schemas) for name, each in MESSAGES.items()},
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "key": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _channels() -> dict[str, Any]:
    feed = {"feed": {"description": "the name of a feed", "examples": [wire.EXAMPLE_FEED]}}
    query = {"changefeed": PLAIN, "version": PLAIN}
    handshake = {"method": "GET", "query": {"type": "object", "properties": query}}
    return {
        "stream": {
            "address": "/feeds/{feed}/ops",
            "title": "Server-Sent Events, or lines of JSON",
            "description": "One connection follows one feed (7).",
            "servers": [{"$ref": "#/servers/http"}],
            "parameters": feed,
            "messages": _of_channel(_STREAM),
        },
        "socket": {
            "address": "/",
            "title": "WebSocket",
            "description": "A connection has one subscription at a time (8), or a listener (13).",
            "servers": [{"$ref": "#/servers/socket"}],
            "messages": _of_channel(_FROM_CLIENT | _FROM_SERVER),
            "bindings": {"ws": {**handshake, "bindingVersion": "0.1.0"}},
        },
        "webhook": {
            "address": None,
            "title": "Webhook",
            "description": "The server posts to the URL of the webhook (19).",
            "messages": _of_channel(_WEBHOOK),
        },
    }


def _of_channel(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _on(channel: str, *names: str) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names]


def _message(message: Message, schemas: dict[str, Any]) -> dict[str, Any]:
    examples = schemas[name_of(message.payload)].get("examples", ())
    headers = message.headers
    return {
        "summary": message.summary,
        "contentType": message.content_type,
        "payload": schema_of(message.payload),
        **({"headers": object_schema(headers)} if headers else {}),
        **({"examples": [{"payload": each} for each in examples]} if not headers else {}),
    }


def _stream_operations(security: list[dict[str, str]]) -> dict[str, Any]:
    query = {
        name: {key: value for key, value in schema.items() if key != "allowEmptyValue"}
        for name, schema in STREAM_QUERY.items()
    }
    binding = {"method": "GET", "query": {"type": "object", "properties": query}}
    channel = {"$ref": "#/channels/stream"}
    bindings = {"http": {**binding, "bindingVersion": "0.3.0"}}
    sent = {"sendEvents": ("sse", STREAM), "sendLines": ("line", NDJSON_TYPE)}
    return {
        name: {
            "action": "send",
            "channel": channel,
            "summary": f"send events; the request accepts `{kind}`",
            "messages": _on("stream", *(each for each in _STREAM if each.startswith(prefix))),
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
            "summary": each.summary,
            "messages": _on("socket", name),
            **(
                {"reply": {"channel": channel, "messages": _on("socket", *each.replies)}}
                if each.replies
                else {}
            ),
        }
        for name, each in _FROM_CLIENT.items()
    }
    pushed = {
        "action": "send",
        "channel": channel,
        "summary": "send events to a client with a subscription, items to a listener",
        "messages": _on("socket", "events", "error", "item"),
    }
    return {**received, "pushEvents": pushed}
