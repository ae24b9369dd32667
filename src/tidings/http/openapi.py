"""
Serve `GET /openapi.json`, which describes the routes in OpenAPI 3.1 for client generators.

The document is generated from the table of routes and from the data below, so it has exactly the
routes that exist. Most responses are described only by their content type; docs/PROTOCOL.md has the
rest. This module also has the JSON Schema of an event in each format (`core.model.envelopes`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, FORMATS, TIDINGS
from tidings.core.model.filters import ERASURES, FIELDS
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.core.settings.profiles import COMPATS
from tidings.core.version import VERSION
from tidings.http.routes import DEFAULT_PATH, HTTP_ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.http.routes import HttpRoute

Schema = dict[str, Any]

SCHEMA_TYPE = "application/schema+json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Schema = {"type": "string", "minLength": 1}
_CURSOR: Schema = {"type": "string", "pattern": "^(?:[0-9a-f]{24}|1)$"}
_SEQUENCE: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
_EVENTS = ["insert", "update", "delete", "leave", "erase", "reset", "live"]
_MS: Schema = {"type": "integer", "minimum": -62135596800000}  # the year 1
_OBJECT: Schema = {
    "type": "object",
    "required": ["type", "id"],
    "properties": {
        "type": _TEXT,
        "id": _TEXT,
        "timestamp": {"type": "string", "format": "date-time"},
        **{name: {"type": "array", "items": _TEXT} for name in ("parents", "tags", "changed")},
        "data": {},
        **{name: {"const": True} for name in ("change", "erased")},
        "ref": {"type": "string"},
    },
}
_MAYBE: Schema = {"anyOf": [_OBJECT, {"type": "null"}]}

ENVELOPES: dict[str, Schema] = {
    TIDINGS: {
        "title": "an event of a feed",
        "type": "object",
        "required": ["id", "event"],
        "properties": {
            "id": _CURSOR,
            "event": {"enum": _EVENTS},
            "data": _OBJECT,
            "traceparent": _TEXT,
        },
        "additionalProperties": False,
    },
    CLOUDEVENTS: {
        "title": "an event of a feed in CloudEvents 1.0",
        "type": "object",
        "required": ["specversion", "id", "source", "type", "cursor"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": _TEXT,
            "source": {"type": "string", "pattern": "^/feeds/"},
            "type": {"enum": [f"tidings.{name}" for name in _EVENTS]},
            "subject": _TEXT,
            "time": {"type": "string", "format": "date-time"},
            "datacontenttype": {"const": "application/json"},
            "data": _OBJECT,
            "cursor": _CURSOR,
            "sequence": _SEQUENCE,
            "traceparent": _TEXT,
        },
        "dependentRequired": {"data": ["datacontenttype", "subject"]},
        "additionalProperties": False,
    },
    DEBEZIUM: {
        "title": "an event of a feed as the value of a change event of Debezium",
        "type": "object",
        "required": ["before", "after", "source", "op", "ts_ms"],
        "properties": {
            "before": _MAYBE,
            "after": _MAYBE,
            "source": {
                "type": "object",
                "required": ["version", "connector", "name", "ts_ms", "snapshot", "db", "table"],
                "properties": {
                    "version": _TEXT,
                    "connector": {"const": "tidings"},
                    "name": _TEXT,
                    "ts_ms": _MS,
                    "snapshot": {"enum": ["true", "false"]},
                    "db": _TEXT,
                    "table": {"type": ["string", "null"]},
                    "sequence": {"anyOf": [_SEQUENCE, {"type": "null"}]},
                    "cursor": _CURSOR,
                    "event": {"enum": _EVENTS},
                    "traceparent": _TEXT,
                },
                "additionalProperties": False,
            },
            "op": {"enum": ["c", "u", "d", "r", "t", "m"]},
            "ts_ms": _MS,
            "transaction": {"type": "null"},
            "message": {"type": "object"},
        },
        "additionalProperties": False,
    },
}
assert {*ENVELOPES} == {*FORMATS}
JSON, NDJSON, TEXT = "application/json", NDJSON_TYPE, "text/plain"
STREAM, YAML = "text/event-stream", "application/yaml"
FORM = "application/x-www-form-urlencoded"
_INTEGER = {"type": "integer", "minimum": 0}
_ID = {"type": "string", "pattern": "^[0-9a-f]{24}$"}
_PLAIN = {"type": "string"}
_KEYED = ("Idempotency-Key",)
_SELECTED = (*FIELDS, "share")
_MEMBERS = "the only member of the cluster"
_MACHINE = "diagnostics of the process that answers"
_IN_PATH = re.compile(r"\{(\w+)\}")
_OF_A_FEED = "/feeds/{feed}"


def schema_document(name: str) -> Schema | None:
    """Return the schema of the format *name* as a separate document, or None if it is unknown."""
    schema = ENVELOPES.get(name)
    return None if schema is None else {"$schema": DIALECT, **schema}


@dataclass(frozen=True, slots=True)
class Doc:
    """
    The description of one route.

    *section* refers to docs/PROTOCOL.md. *query* and *headers* are names in `PARAMETERS`. *body*
    pairs content types with schemas. *answer* is the content type of a response with *status*, or
    "" if the response has no body. If there are several content types, *answers* pairs each with
    its schema.
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
_FILTERED: Schema = {
    **dict.fromkeys(FIELDS, _list(_NAME, limits.FILTER_VALUES_MAX)),
    ERASURES: {"type": "boolean"},
}
_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_SWITCHES = ("force", "tables", "deleted")
_SETTINGS: Schema = {
    "object_url": {"type": "string", "maxLength": limits.OBJECT_URL_CHARS_MAX},
    "compat": {"type": "string", "enum": [*COMPATS]},
    "leave": {"type": "boolean"},
    "ids_personal": {"type": "boolean"},
    "resources": _list(
        {
            "type": "object",
            "required": ["resource"],
            "properties": {
                "resource": _text(1, limits.TYPE_BYTES_MAX),
                "subResources": _list(_NAME, limits.TAGS_MAX),
                "bootstrapRoute": _text(1, limits.OBJECT_URL_CHARS_MAX),
            },
            "additionalProperties": False,
        },
        limits.RESOURCES_MAX,
    ),
    "max_age": _INTEGER,
    "forget_after_days": {**_INTEGER, "maximum": limits.FORGET_AFTER_DAYS_MAX},
    "push_lanes": {"type": "integer", "minimum": 1, "maximum": limits.PUSH_LANES_MAX},
}
_REMOVAL: Schema = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 1},
        "state": {"type": "string", "enum": ["deleting", "deleted"]},
        "deleted_at": _TIME,
        "done_at": _TIME,
        "tables": {"type": "string", "enum": ["kept", "pending", "dropped"]},
        "removed": {"type": "object", "additionalProperties": _INTEGER},
    },
}
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
            **_FILTERED,
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
            **_FILTERED,
        },
    },
    "WebhookSecret": {"type": "object", "properties": {"secret": {"type": "string"}}},
    "ConsumerAction": {
        "type": "object",
        "properties": {
            **_WHY,
            "worker": _text(1, 200),
            "fence": _INTEGER,
            "through": _ID,
            "ids": _list(_ID, limits.REQUEST_OPERATIONS_MAX),
            "sending": _ID,
            "retried": _list(_ID, limits.REQUEST_OPERATIONS_MAX),
            "error": {"type": "string"},
            "id": {"type": "string"},
            "position": {"type": "string"},
        },
    },
    "Erasure": {
        "type": "object",
        "required": ["type", "id", "reason"],
        "properties": {
            "type": _text(1, limits.TYPE_BYTES_MAX),
            "id": _text(1, limits.ID_BYTES_MAX),
            "reason": _text(1, limits.WHY_CHARS_MAX),
            "parents": {"type": "boolean"},
            "before": _ID,
        },
        "additionalProperties": False,
    },
    "FeedSettings": {
        "type": "object",
        "properties": _SETTINGS,
        "additionalProperties": False,
        "examples": [{"leave": True, "forget_after_days": 30}, {}],
    },
    "FeedRecord": {
        "type": "object",
        "required": ["feed", "state", "number", "settings", "removals"],
        "properties": {
            "feed": _PLAIN,
            "state": {"type": "string", "enum": ["live", "deleting", "deleted"]},
            "number": {"type": "integer", "minimum": 1},
            "created_at": _TIME,
            "deleted_at": _TIME,
            "by": _PLAIN,
            "settings": {"anyOf": [{"type": "object", "properties": _SETTINGS}, {"type": "null"}]},
            "removals": {"type": "array", "items": _REMOVAL},
        },
        "examples": [
            {
                "feed": "orders",
                "state": "deleting",
                "number": 1,
                "created_at": "2026-11-27T18:59:33.363Z",
                "deleted_at": "2026-11-27T19:04:10.12Z",
                "by": "key 3k2m9c0q8xw1",
                "settings": None,
                "removals": [
                    {
                        "number": 1,
                        "state": "deleting",
                        "deleted_at": "2026-11-27T19:04:10.12Z",
                        "done_at": None,
                        "tables": "kept",
                        "removed": {"log": 2},
                    }
                ],
            }
        ],
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
            "minPurgeRecords": _INTEGER,
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
    ERASURES: {"type": "string", "enum": ["true", "false"]},
    "trace": {"type": "string", "enum": ["true", "false"]},
    "cursors": {"type": "string", "enum": ["true", "false"]},
    "format": {"type": "string", "enum": [*FORMATS]},
    "lastEventId": {"type": "string"},
    "since": _INTEGER,
    "limit": {**_INTEGER, "maximum": limits.REQUEST_OPERATIONS_MAX},
    "block": {**_INTEGER, "maximum": 20},
    "tag": {"type": "string"},
    "through": _INTEGER,
    "strict": {"type": "string", "enum": ["true", "false"]},
    "type": {"type": "string"},
    "id": {"type": "string"},
    "after": {"type": "string"},
    "confirm": {"type": "string", "description": "the name of the feed again"},
    **{name: {"type": "string", "enum": ["true", "false"]} for name in _SWITCHES},
    "from": _ID,
    "to": _ID,
    "why": _text(1, 200),
    "by": _text(1, 200),
    "share": {"type": "string"},
    "size": {"type": "integer", "minimum": 1, "maximum": limits.BATCH_BYTES_MAX},
    "bucket": {**_INTEGER, "maximum": limits.BUCKETS - 1},
    "Last-Event-ID": {"type": "string"},
    "If-None-Match": {"type": "string", "enum": ["*"]},
    "Idempotency-Key": {"type": "string", "pattern": "^[!-~]{1,128}$"},
    "traceparent": {"type": "string"},
    "Prefer": {"type": "string", "enum": ["return=representation"]},
}

_EVENT_SCHEMAS = [_ref(f"Event.{name}") for name in FORMATS]
_CONFIGURED = ((YAML, _ref("Configuration")),)
_MARKED = ((FORM, _ref("Health")),)
_ACTED = ((JSON, _ref("ConsumerAction")),)
_POSTED = _list(_ref("Operation"), limits.REQUEST_OPERATIONS_MAX)

# The descriptions by method and path, without the part of the path that names a feed.
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
        query=(*FIELDS, "leave", ERASURES, "trace", "cursors", "format", "lastEventId"),
        headers=("Last-Event-ID",),
        answers=((STREAM, _PLAIN), (NDJSON, {"anyOf": _EVENT_SCHEMAS})),
    ),
    "GET /status": Doc("the status of the feed", "9"),
    "GET /changes": Doc("list changes", "12.4", query=("since", "limit", "block", "tag", "strict")),
    "GET /changes/{id}": Doc("one change", "12.7"),
    "POST /changes": Doc("append a change", "12.3", headers=_KEYED, body=((JSON, _ref("Change")),)),
    "GET /changefeeds": Doc("the resources that listeners can register for", "13.3"),
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
    "GET /changefeeds/stats": Doc("the registered listeners", "13.3"),
    "GET /objects": Doc(
        "the latest operation of each object", "13.9", query=("type", "id", "after")
    ),
    "GET /sums": Doc("the sums of the state, by bucket", "20.3", query=("types",)),
    "GET /log": Doc(
        "the ids of the oldest and the latest operation, or a range of operations",
        "14.8",
        query=("from", "to", "limit"),
    ),
    "GET /consumers": Doc("all named consumers", "14.2"),
    "PUT /consumers/{name}": Doc(
        "register a consumer",
        "14.2",
        headers=("If-None-Match",),
        body=((JSON, _ref("Consumer")),),
        status=201,
    ),
    "GET /consumers/{name}": Doc("one consumer", "14.2"),
    "DELETE /consumers/{name}": Doc("delete a consumer", "14.6", query=("why", "by")),
    "GET /consumers/{name}/parked": Doc("the parked messages of a consumer", "14.6"),
    "GET /consumers/{name}/notes": Doc("the notes about actions of operators", "14.6"),
    "POST /consumers/{name}/{action}": Doc("act as a worker or an operator", "14", body=_ACTED),
    "GET /hooks": Doc("all webhooks", "19.2"),
    "PUT /hooks/{name}": Doc(
        "create or change a webhook",
        "19.2",
        headers=("If-None-Match",),
        body=((JSON, _ref("Webhook")),),
        status=201,
    ),
    "GET /hooks/{name}": Doc("one webhook", "19.2"),
    "DELETE /hooks/{name}": Doc("delete a webhook and its consumer", "19.2", query=("why", "by")),
    "POST /hooks/{name}/rotate": Doc(
        "create another secret", "19.4", body=((JSON, _ref("WebhookSecret")),)
    ),
    "GET /access": Doc("the roles that the credential grants", "10.10"),
    "GET /keys": Doc("all keys, without their secrets", "17.11"),
    "POST /keys/{id}/revoke": Doc("revoke a key", "17.11"),
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
    "POST /erasures": Doc(
        "erase an object",
        "22.1",
        headers=_KEYED,
        body=((JSON, _ref("Erasure")),),
        status=202,
    ),
    "GET /erasures": Doc("all erasures", "22.5", query=("after",)),
    "GET /erasures/{id}": Doc("the report of an erasure", "22.5"),
    "GET /feeds": Doc("all feeds of the host", "23.5", query=("after", "limit", "deleted")),
    "PUT /feeds/{feed}": Doc(
        "create a feed, or change its settings",
        "23.1",
        headers=("If-None-Match",),
        body=((JSON, _ref("FeedSettings")),),
        status=201,
        answers=((JSON, _ref("FeedRecord")),),
    ),
    "GET /feeds/{feed}": Doc("the record of a feed", "23.4", answers=((JSON, _ref("FeedRecord")),)),
    "DELETE /feeds/{feed}": Doc(
        "delete a feed with all its data",
        "23.6",
        query=("confirm", "force", "tables"),
        status=202,
        answers=((JSON, _ref("FeedRecord")),),
    ),
    "GET /relays": Doc("all chained feeds", "16.11"),
    "GET /relay": Doc("the status of a chained feed", "16.11"),
    "PUT /relay/password": Doc(
        "set the password for the upstream", "16.11", body=((JSON, _ref("RelayPassword")),)
    ),
    "POST /relay/{action}": Doc(
        "control a chained feed", "16.11", body=((JSON, _ref("RelayAction")),)
    ),
    "GET /health": Doc("the health for load balancers", "9.6", answer=TEXT),
    "PUT /health": Doc("mark the deployment up or down", "12.14", body=_MARKED, answer=""),
    "POST /health": Doc("mark the deployment up or down", "12.14", body=_MARKED, answer=""),
    "GET /config": Doc("the configuration", "12.10", answer=YAML),
    "PUT /config": Doc("replace the configuration", "12.10", body=_CONFIGURED, answer=YAML),
    "POST /config": Doc("replace the configuration", "12.10", body=_CONFIGURED, answer=YAML),
    "GET /cluster": Doc(_MEMBERS, "12.15"),
    "GET /cluster/members": Doc(_MEMBERS, "12.15"),
    "PUT /cluster/members": Doc("rejected, because members are fixed", "12.15", status=501),
    "POST /cluster/members": Doc("rejected, because members are fixed", "12.15", status=501),
    "GET /cluster/members/{id}": Doc(_MEMBERS, "12.15", answer=TEXT),
    "DELETE /cluster/members/{id}": Doc("rejected, because members are fixed", "12.15", status=501),
    "GET /diagnostics": Doc(_MACHINE, "12.13"),
    "GET /diagnostics/{part}": Doc(_MACHINE, "12.13"),
    "GET /diagnostics/raft/{part}": Doc(_MACHINE, "12.13", answer=TEXT),
    "GET /openapi.json": Doc("this document", "4"),
    "GET /schemas/{format}": Doc("the JSON Schema of an event", "6.10", answer=SCHEMA_TYPE),
}


def document(feeds: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """Return the document for *feeds*; *prefix* is the path below which they are served."""
    paths: dict[str, dict[str, Any]] = {}
    for route in HTTP_ROUTES:
        if route.path != DEFAULT_PATH:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, feeds)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidings", "version": VERSION, "description": "docs/PROTOCOL.md"},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "key": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def doc_of(route: HttpRoute) -> Doc:
    """Return the description of *route*, which is the same with and without a feed in the path."""
    path = route.path if route.path == _OF_A_FEED else route.path.removeprefix(_OF_A_FEED)
    return DOCS[f"{route.method} {'/ops' if path == '/' else path}"]


def _operation(route: HttpRoute, feeds: Iterable[str]) -> dict[str, Any]:
    doc = doc_of(route)
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": doc.summary,
        "description": f"docs/PROTOCOL.md, section {doc.section}",
        "parameters": [
            *(_path_parameter(route.path, name, feeds) for name in _IN_PATH.findall(route.path)),
            *(_parameter("query", name) for name in doc.query),
            *(_parameter("header", name) for name in doc.headers),
        ],
        "responses": {
            str(doc.status): _answer(doc),
            "default": _error(doc),
        },
    }
    if doc.body:
        content = {kind: {"schema": schema} for kind, schema in doc.body}
        operation["requestBody"] = {"required": True, "content": content}
    if route.need.role is not None:
        operation["security"] = [{"password": []}, {"key": []}]
    return operation


def _operation_id(route: HttpRoute) -> str:
    """Return the operation id, such as `getFeedsFeedOps` for `GET /feeds/{feed}/ops`."""
    words = re.findall(r"\w+", route.path)
    return route.method.lower() + ("".join(word.title() for word in words) or "Root")


def _parameter(place: str, name: str) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": PARAMETERS[name]}


def _path_parameter(path: str, name: str, feeds: Iterable[str]) -> dict[str, Any]:
    """Return the parameter *name* of *path*; a feed exists, unless the path itself creates it."""
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if name == "feed" and path != _OF_A_FEED:
        schema = {"type": "string", "enum": sorted(feeds)}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _error(doc: Doc) -> dict[str, Any]:
    """Return the error response. The paths of section 12 have changeagent's error format."""
    schema = {} if doc.section.startswith("12") else {"$ref": "#/components/schemas/Error"}
    return {"description": "an error", "content": {"application/json": {"schema": schema}}}


def _answer(doc: Doc) -> dict[str, Any]:
    content: dict[str, Any] = {kind: {"schema": schema} for kind, schema in doc.answers}
    if doc.answer and not content:
        content = {doc.answer: {}}
    return {"description": "done", **({"content": content} if content else {})}
