"""The input and output of each route, for `openapi`. Data only; docs/PROTOCOL.md has the rules."""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core import limits
from tidings.core.model.envelopes import FORMATS
from tidings.core.model.filters import FIELDS
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.http.openapi.envelopes import ENVELOPES, SCHEMA_TYPE, Schema

JSON, NDJSON, TEXT = "application/json", NDJSON_TYPE, "text/plain"
STREAM, YAML = "text/event-stream", "application/yaml"
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Doc:
    """
    The description of one route.

    *section* refers to docs/PROTOCOL.md. *query* and *headers* are names in `PARAMETERS`. *body*
    maps content types to schemas. *answer* is the content type of a response with *status*, "" for
    none. If there are several content types, *answers* maps each to its schema.
    """

    summary: str
    section: str
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    body: tuple[tuple[str, Schema], ...] = ()
    status: int = 200
    answer: str = JSON
    answers: tuple[tuple[str, Schema], ...] = ()


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(of: Schema, most: int) -> Schema:
    return {"type": "array", "items": of, "maxItems": most}


def _text(least: int, most: int) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


_NAME = _text(1, limits.PARENT_BYTES_MAX)
_WHOLE = {"type": "integer", "minimum": 0}
_ID = {"type": "string", "pattern": "^[0-9a-f]{24}$"}
_WHY = {"why": _text(1, 200), "by": _text(1, 200)}

SCHEMAS: dict[str, Schema] = {
    "Operation": {
        "type": "object",
        "required": ["event", "type", "id"],
        "properties": {
            "event": {"type": "string", "enum": ["insert", "update", "delete"]},
            "type": _text(1, limits.TYPE_BYTES_MAX),
            "id": _text(1, limits.ID_BYTES_MAX),
            "parents": _list(_NAME, limits.PARENTS_MAX),
            "timestamp": {"type": "string", "format": "date-time"},
            "tags": _list(_NAME, limits.TAGS_MAX),
            "changed": _list(_NAME, limits.TAGS_MAX),
            "data": {},
        },
    },
    "Change": {
        "type": "object",
        "properties": {"tags": _list(_NAME, limits.PARENTS_MAX), "data": {}},
    },
    "Item": {
        "type": "object",
        "required": ["changeKind", "changedResourceId"],
        "properties": {
            "changeKind": {
                "type": "object",
                "required": ["resource"],
                "properties": {
                    "resource": _text(1, limits.TYPE_BYTES_MAX),
                    "subResources": _list(_NAME, limits.TAGS_MAX),
                },
            },
            "changedResourceId": _text(1, limits.ID_BYTES_MAX),
            "event": {"type": "string", "enum": ["insert", "update", "delete"]},
        },
    },
    "Consumer": {
        "type": "object",
        "properties": {
            "from": {"anyOf": [{"type": "string", "enum": ["oldest", "now", "copy"]}, _ID]},
            **dict.fromkeys(FIELDS, _list(_NAME, limits.FILTER_VALUES_MAX)),
        },
    },
    "Webhook": {
        "type": "object",
        "required": ["url"],
        "properties": {
            "url": _text(1, limits.WEBHOOK_URL_CHARS_MAX),
            "format": {"type": "string", "enum": [*FORMATS]},
            "attempts": {
                "type": "integer",
                "minimum": 1,
                "maximum": limits.WEBHOOK_ATTEMPTS_MAX,
            },
            "secret": {"type": "string", "pattern": "^whsec_"},
            "from": {"anyOf": [{"type": "string", "enum": ["oldest", "now"]}, _ID]},
            **dict.fromkeys(FIELDS, _list(_NAME, limits.FILTER_VALUES_MAX)),
        },
    },
    "WebhookSecret": {"type": "object", "properties": {"secret": {"type": "string"}}},
    "ConsumerAction": {
        "type": "object",
        "properties": {
            **_WHY,
            "worker": _text(1, 200),
            "fence": _WHOLE,
            "through": _ID,
            "ids": _list(_ID, limits.REQUEST_OPERATIONS_MAX),
            "sending": _ID,
            "retried": _list(_ID, limits.REQUEST_OPERATIONS_MAX),
            "error": {"type": "string"},
            "id": {"type": "string"},
            "position": {"type": "string"},
        },
    },
    "RelayAction": {"type": "object", "properties": {"to": {"type": "string"}, **_WHY}},
    "RelayPassword": {"type": "object", "properties": {"password": {"type": "string"}}},
    "Keys": {
        "type": "object",
        "required": ["keys"],
        "properties": {"keys": _list(_text(1, limits.STATE_KEY_BYTES_MAX), limits.LOOKUP_KEYS_MAX)},
    },
    "Configuration": {
        "type": "object",
        "properties": {
            "minPurgeRecords": _WHOLE,
            "minPurgeDuration": {"type": "string"},
            "electionTimeout": {"type": "string"},
            "heartbeatTimeout": {"type": "string"},
            "webHooks": _list({"type": "object"}, limits.HOOKS_MAX),
        },
    },
    "Health": {"type": "object", "properties": {"up": {"type": "string"}}},
    **{f"Event.{name}": schema for name, schema in ENVELOPES.items()},
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": "string"},
                    **{name: {} for name in ("message", "field", "value", "rule")},
                },
            }
        },
    },
}

PARAMETERS: dict[str, Schema] = {
    **{name: {"type": "string"} for name in FIELDS},
    "leave": {"type": "string", "enum": ["true", "false"]},
    "trace": {"type": "string", "enum": ["true", "false"]},
    "cursors": {"type": "string", "enum": ["true", "false"]},
    "format": {"type": "string", "enum": [*FORMATS]},
    "lastEventId": {"type": "string"},
    "since": _WHOLE,
    "limit": {**_WHOLE, "maximum": limits.REQUEST_OPERATIONS_MAX},
    "block": {**_WHOLE, "maximum": 20},
    "tag": {"type": "string"},
    "through": _WHOLE,
    "strict": {"type": "string", "enum": ["true", "false"]},
    "type": {"type": "string"},
    "id": {"type": "string"},
    "after": {"type": "string"},
    "from": _ID,
    "to": _ID,
    "why": _text(1, 200),
    "by": _text(1, 200),
    "share": {"type": "string"},
    "size": {"type": "integer", "minimum": 1, "maximum": limits.PORTION_BYTES_MAX},
    "bucket": {**_WHOLE, "maximum": limits.BUCKETS - 1},
    "Last-Event-ID": {"type": "string"},
    "Idempotency-Key": {"type": "string", "pattern": "^[!-~]{1,128}$"},
    "traceparent": {"type": "string"},
    "Prefer": {"type": "string", "enum": ["return=representation"]},
}

_PLAIN = {"type": "string"}
_EVENTS = [_ref(f"Event.{name}") for name in FORMATS]
_KEYED = ("Idempotency-Key",)
_CONFIGURED = ((YAML, _ref("Configuration")),)
_MARKED = ((FORM, _ref("Health")),)
_ACTED = ((JSON, _ref("ConsumerAction")),)
_SELECTED = (*FIELDS, "share")
_POSTED = _list(_ref("Operation"), limits.REQUEST_OPERATIONS_MAX)
_MEMBERS = "the one member there is"
_MACHINE = "the sandbox that answers"

# By method and path, without the part that names a feed.
DOCS: dict[str, Doc] = {
    "POST /ops": Doc(
        "append operations",
        "4",
        headers=(*_KEYED, "Prefer", "traceparent"),
        body=((JSON, {"anyOf": [_ref("Operation"), _POSTED]}), (NDJSON, _PLAIN)),
        status=204,
        answer="",
    ),
    "GET /ops": Doc(
        "follow the feed",
        "7",
        query=(*FIELDS, "leave", "trace", "cursors", "format", "lastEventId"),
        headers=("Last-Event-ID",),
        answers=((STREAM, _PLAIN), (NDJSON, {"anyOf": _EVENTS})),
    ),
    "GET /status": Doc("how the feed is", "9"),
    "GET /changes": Doc("list changes", "12.4", query=("since", "limit", "block", "tag", "strict")),
    "GET /changes/{id}": Doc("one change", "12.7"),
    "POST /changes": Doc("append a change", "12.3", headers=_KEYED, body=((JSON, _ref("Change")),)),
    "GET /changefeeds": Doc("what may be listened for", "13.3"),
    "POST /changefeeds": Doc(
        "publish items",
        "13.2",
        headers=_KEYED,
        body=(
            (JSON, {"anyOf": [_ref("Item"), _list(_ref("Item"), limits.REQUEST_OPERATIONS_MAX)]}),
        ),
        status=204,
        answer="",
    ),
    "GET /changefeeds/stats": Doc("who listens", "13.3"),
    "GET /objects": Doc("the latest of each object", "13.9", query=("type", "id", "after")),
    "GET /sums": Doc("the sums of the state, by bucket", "20.3", query=("types",)),
    "GET /log": Doc("the ends of the log, or a stretch", "14.8", query=("from", "to", "limit")),
    "GET /consumers": Doc("all named consumers", "14.2"),
    "PUT /consumers/{name}": Doc(
        "register a consumer", "14.2", body=((JSON, _ref("Consumer")),), status=201
    ),
    "GET /consumers/{name}": Doc("one of them", "14.2"),
    "DELETE /consumers/{name}": Doc("forget it", "14.6", query=("why", "by")),
    "GET /consumers/{name}/parked": Doc("messages put aside", "14.6"),
    "GET /consumers/{name}/notes": Doc("what operators did", "14.6"),
    "POST /consumers/{name}/{action}": Doc("what workers and operators say", "14", body=_ACTED),
    "GET /hooks": Doc("all webhooks", "19.2"),
    "PUT /hooks/{name}": Doc(
        "make or change a webhook", "19.2", body=((JSON, _ref("Webhook")),), status=201
    ),
    "GET /hooks/{name}": Doc("one of them", "19.2"),
    "DELETE /hooks/{name}": Doc("forget it and its consumer", "19.2", query=("why", "by")),
    "POST /hooks/{name}/rotate": Doc("a new secret", "19.4", body=((JSON, _ref("WebhookSecret")),)),
    "GET /keys": Doc("all keys, without their secrets", "17.11"),
    "POST /keys/{id}/revoke": Doc("end a key", "17.11"),
    "GET /pages": Doc(
        "pages to copy", "16.3", query=("after", *_SELECTED, "size", "block"), answer=NDJSON
    ),
    "GET /rows": Doc(
        "rows of the state", "16.7", query=("bucket", "after", *_SELECTED), answer=NDJSON
    ),
    "POST /corrections": Doc(
        "apply corrections of a sync", "18", query=("through",), body=((NDJSON, _PLAIN),)
    ),
    "POST /corrections/rows": Doc("rows of some objects", "18.7", body=((JSON, _ref("Keys")),)),
    "GET /relays": Doc("all chained feeds", "16.11"),
    "GET /relay": Doc("how the copy is", "16.11"),
    "PUT /relay/password": Doc(
        "what the upstream asks for", "16.11", body=((JSON, _ref("RelayPassword")),)
    ),
    "POST /relay/{action}": Doc("steer the copy", "16.11", body=((JSON, _ref("RelayAction")),)),
    "GET /health": Doc("for load balancers", "9.6", answer=TEXT),
    "PUT /health": Doc("mark up or down", "12.14", body=_MARKED, answer=""),
    "POST /health": Doc("mark up or down", "12.14", body=_MARKED, answer=""),
    "GET /config": Doc("the configuration", "12.10", answer=YAML),
    "PUT /config": Doc("replace it", "12.10", body=_CONFIGURED, answer=YAML),
    "POST /config": Doc("replace it", "12.10", body=_CONFIGURED, answer=YAML),
    "GET /cluster": Doc(_MEMBERS, "12.15"),
    "GET /cluster/members": Doc(_MEMBERS, "12.15"),
    "PUT /cluster/members": Doc("is not done", "12.15", status=501),
    "POST /cluster/members": Doc("is not done", "12.15", status=501),
    "GET /cluster/members/{id}": Doc(_MEMBERS, "12.15", answer=TEXT),
    "DELETE /cluster/members/{id}": Doc("is not done", "12.15", status=501),
    "GET /diagnostics": Doc(_MACHINE, "12.13"),
    "GET /diagnostics/{part}": Doc(_MACHINE, "12.13"),
    "GET /diagnostics/raft/{part}": Doc(_MACHINE, "12.13", answer=TEXT),
    "GET /openapi.json": Doc("this document", "4"),
    "GET /schemas/{format}": Doc("the JSON Schema of an event", "6.10", answer=SCHEMA_TYPE),
}
