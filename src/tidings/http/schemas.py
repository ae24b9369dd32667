"""The JSON Schemas of requests, responses, events and errors, which OpenAPI and AsyncAPI share.

Limits and lists of values are those of the modules that enforce them. A schema of a response allows
more fields, because later releases may add some.
"""

from __future__ import annotations

from typing import Any

from tidings.core import limits
from tidings.core.maintenance.status import COUNTERS, LAGGING, OK, STALLED, UNAVAILABLE
from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, FORMATS, TIDINGS
from tidings.core.model.filters import ERASURES, FIELDS

Schema = dict[str, Any]

SCHEMA_TYPE = "application/schema+json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The names of the schemas of events, by format.
EVENTS = {TIDINGS: "FeedEvent", CLOUDEVENTS: "CloudEvent", DEBEZIUM: "DebeziumEvent"}

EXAMPLE_FEED = "orders"
EXAMPLE_CURSOR = "6927c1d5000000002a000000"
EXAMPLE_END = "6927c1d5000000002a7fffff"
_EXAMPLE_TIME = "2026-11-27T18:59:33.363Z"
_EXAMPLE_MS = 1_795_805_973_363

_TEXT: Schema = {"type": "string", "minLength": 1}
_PLAIN: Schema = {"type": "string"}
_CURSOR: Schema = {"type": "string", "pattern": "^(?:[0-9a-f]{24}|1)$"}
_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{24}$"}
_SEQUENCE: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
_EVENTS = ["insert", "update", "delete", "leave", "erase", "reset", "live"]
_POSTED = ["insert", "update", "delete"]
_MS: Schema = {"type": "integer", "format": "int64", "minimum": -62135596800000}  # the year 1
# Generated clients of typed languages would have 32 bits: few for ids and times.
_INTEGER: Schema = {"type": "integer", "format": "int64", "minimum": 0}
_BOOLEAN: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_TEXTS: Schema = {"type": "array", "items": _PLAIN}


def ref(name: str) -> Schema:
    """Return a reference to the schema *name* of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(of: Schema, most: int | None = None) -> Schema:
    return {"type": "array", "items": of, **({} if most is None else {"maxItems": most})}


def _text(least: int, most: int) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


def _or_null(schema: Schema) -> Schema:
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": [*values]}


def record(fields: Schema, *optional: str, example: Any = None, **more: Any) -> Schema:
    """Return the schema of an object that has all *fields*, except perhaps the *optional* ones."""
    required = [name for name in fields if name not in optional]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "properties": fields,
        **more,
        **({} if example is None else {"examples": [example]}),
    }


def request(fields: Schema, *required: str, example: Any, **more: Any) -> Schema:
    """Return the schema of a body that needs the fields *required* and may have the others."""
    optional = [name for name in fields if name not in required]
    return record(fields, *optional, example=example, **more)


_PARENT = _text(1, limits.PARENT_BYTES_MAX)
_TYPE, _OBJECT_ID = _text(1, limits.TYPE_BYTES_MAX), _text(1, limits.ID_BYTES_MAX)
FILTER: Schema = {
    **dict.fromkeys(FIELDS, list_of(_PARENT, limits.FILTER_VALUES_MAX)),
    ERASURES: _BOOLEAN,
}

# Events.

_OBJECT: Schema = {
    "type": "object",
    "required": ["type", "id"],
    "properties": {
        "type": _TEXT,
        "id": _TEXT,
        "timestamp": _TIME,
        **{name: {"type": "array", "items": _TEXT} for name in ("parents", "tags", "changed")},
        "data": {},
        **{name: {**_BOOLEAN, "description": "true, or missing"} for name in ("change", "erased")},
        "ref": _PLAIN,
    },
}
_EXAMPLE_OPERATION = {
    "event": "update",
    "type": "order",
    "id": "o-1024",
    "parents": ["customer/ann"],
    "timestamp": _EXAMPLE_TIME,
    "data": {"total": 1999},
}
EXAMPLE_OBJECT = {key: value for key, value in _EXAMPLE_OPERATION.items() if key != "event"}


def _envelopes(of_object: Schema) -> dict[str, Schema]:
    """Return the schemas of events by format; *of_object* is the schema of their objects."""
    return {
        TIDINGS: {
            "title": "an event of a feed",
            "type": "object",
            "required": ["id", "event"],
            "properties": {
                "id": _CURSOR,
                "event": one_of(*_EVENTS),
                "data": of_object,
                "traceparent": _TEXT,
            },
            "additionalProperties": False,
            "examples": [{"id": EXAMPLE_CURSOR, "event": "update", "data": EXAMPLE_OBJECT}],
        },
        CLOUDEVENTS: {
            "title": "an event of a feed in CloudEvents 1.0",
            "type": "object",
            "required": ["specversion", "id", "source", "type", "cursor"],
            "properties": {
                "specversion": {"type": "string", "const": "1.0"},
                "id": _TEXT,
                "source": {"type": "string", "pattern": "^/feeds/"},
                "type": one_of(*(f"tidings.{name}" for name in _EVENTS)),
                "subject": _TEXT,
                "time": _TIME,
                "datacontenttype": {"type": "string", "const": "application/json"},
                "data": of_object,
                "cursor": _CURSOR,
                "sequence": _SEQUENCE,
                "traceparent": _TEXT,
            },
            "dependentRequired": {"data": ["datacontenttype", "subject"]},
            "additionalProperties": False,
            "examples": [
                {
                    "specversion": "1.0",
                    "id": EXAMPLE_CURSOR,
                    "source": f"/feeds/{EXAMPLE_FEED}",
                    "type": "tidings.update",
                    "subject": "order/o-1024",
                    "time": _EXAMPLE_TIME,
                    "datacontenttype": "application/json",
                    "data": EXAMPLE_OBJECT,
                    "cursor": EXAMPLE_CURSOR,
                    "sequence": EXAMPLE_CURSOR[8:],
                }
            ],
        },
        DEBEZIUM: {
            "title": "an event of a feed as the value of a change event of Debezium",
            "type": "object",
            "required": ["before", "after", "source", "op", "ts_ms"],
            "properties": {
                "before": {"anyOf": [of_object, {"type": "null"}]},
                "after": {"anyOf": [of_object, {"type": "null"}]},
                "source": {
                    "type": "object",
                    "required": [
                        "version",
                        "connector",
                        "name",
                        "ts_ms",
                        "snapshot",
                        "db",
                        "table",
                    ],
                    "properties": {
                        "version": _TEXT,
                        "connector": {"type": "string", "const": "tidings"},
                        "name": _TEXT,
                        "ts_ms": _MS,
                        "snapshot": one_of("true", "false"),
                        "db": _TEXT,
                        "table": {"type": ["string", "null"]},
                        "sequence": {"anyOf": [_SEQUENCE, {"type": "null"}]},
                        "cursor": _CURSOR,
                        "event": one_of(*_EVENTS),
                        "traceparent": _TEXT,
                    },
                    "additionalProperties": False,
                },
                "op": one_of("c", "u", "d", "r", "t", "m"),
                "ts_ms": _MS,
                "transaction": {"type": ["object", "null"]},
                "message": {"type": "object"},
            },
            "additionalProperties": False,
            "examples": [
                {
                    "before": None,
                    "after": EXAMPLE_OBJECT,
                    "source": {
                        "version": "0.1.0",
                        "connector": "tidings",
                        "name": EXAMPLE_FEED,
                        "ts_ms": _EXAMPLE_MS,
                        "snapshot": "false",
                        "db": EXAMPLE_FEED,
                        "table": "order",
                        "sequence": EXAMPLE_CURSOR[8:],
                        "cursor": EXAMPLE_CURSOR,
                        "event": "update",
                    },
                    "op": "u",
                    "ts_ms": _EXAMPLE_MS,
                    "transaction": None,
                }
            ],
        },
    }


# The schemas of events that are complete in themselves.
ENVELOPES = _envelopes(_OBJECT)
assert {*ENVELOPES} == {*FORMATS} == {*EVENTS}


def schema_document(name: str) -> Schema | None:
    """Return the schema of the format *name* as a separate document, or None if it is unknown."""
    schema = ENVELOPES.get(name)
    return None if schema is None else {"$schema": DIALECT, **schema}


_DURATION = {"anyOf": [_PLAIN, {"type": "null"}, {"type": "integer", "const": 0}]}

# The status of a feed, chained feeds.

_FOLLOWER = record(
    {
        "name": _PLAIN,
        "checkpoint": _INTEGER,
        "lag_pages": {"type": "integer", "format": "int64"},
        "lag_ms": _INTEGER,
        "leased": _BOOLEAN,
    }
)
_STATUS: Schema = {
    "status": one_of(OK, LAGGING, STALLED, UNAVAILABLE),
    **dict.fromkeys(COUNTERS, _or_null(_INTEGER)),
    "feed": _PLAIN,
    "feeds": _TEXTS,
    "head": _INTEGER,
    "frontier": record({"cursor": _ID, "page": _INTEGER, "exact": _BOOLEAN}),
    "floor": _INTEGER,
    "followers": list_of(_FOLLOWER),
    "time": _TIME,
    "source": _PLAIN,
    "generation": {"type": "integer", "minimum": 1},
    "relay": _PLAIN,
    "problems": _TEXTS,
}
_READY = ("feeds", "head", "frontier", "floor", "followers", "source", "generation")
ITEM_KIND = request(
    {"resource": _TYPE, "subResources": list_of(_PARENT, limits.TAGS_MAX)}, "resource", example=None
)
EXAMPLE_KIND = {"resource": "vm", "subResources": ["nic"]}
_CHANGE: Schema = {"_id": _INTEGER, "_ts": _INTEGER, "tags": _TEXTS, "data": {}}
_EXAMPLE_CHANGE = {
    "_id": 43008,
    "_ts": 1_795_805_973_363_000_000,
    "tags": ["user/ann"],
    "data": {"a": 1},
}

SCHEMAS: dict[str, Schema] = {
    "Error": record(
        {
            "error": record(
                {
                    "code": {**_TEXT, "description": "stable; see the examples of the response"},
                    "message": {**_TEXT, "description": "the field and the rule, for people"},
                    "field": {**_PLAIN, "description": "the part of the request, or empty"},
                    "value": {**_PLAIN, "description": "as Python shows it, shortened; or empty"},
                    "rule": {**_TEXT, "description": "the rule that the value broke"},
                    "master": {**_PLAIN, "description": "of a chained feed: where to post"},
                    "floor": {**_INTEGER, "description": "the first page of the log"},
                },
                "master",
                "floor",
            )
        }
    ),
    "ChangesError": record({"error": _PLAIN, "floor": _INTEGER}, "floor"),
    "Operation": request(
        {
            "event": one_of(*_POSTED),
            "type": _TYPE,
            "id": _OBJECT_ID,
            "parents": list_of(_PARENT, limits.PARENTS_MAX),
            "timestamp": _TIME,
            "tags": list_of(_PARENT, limits.TAGS_MAX),
            "changed": list_of(_PARENT, limits.TAGS_MAX),
            "data": {},
        },
        *("event", "type", "id"),
        example=_EXAMPLE_OPERATION,
    ),
    "Operations": {
        **list_of(ref("Operation"), limits.REQUEST_OPERATIONS_MAX),
        "minItems": 1,
        "examples": [[_EXAMPLE_OPERATION]],
    },
    "FeedObject": {**_OBJECT, "examples": [EXAMPLE_OBJECT]},
    "OperationIds": record({"ids": list_of(_ID)}, example={"ids": [EXAMPLE_CURSOR]}),
    "Status": record(
        _STATUS,
        *(*_READY, "relay", "problems"),
        example={
            "status": OK,
            **dict.fromkeys(COUNTERS, 0),
            "feed": EXAMPLE_FEED,
            "feeds": [EXAMPLE_FEED],
            "head": 42,
            "frontier": {"cursor": EXAMPLE_END, "page": 42, "exact": True},
            "floor": 1,
            "followers": [
                {"name": "state", "checkpoint": 42, "lag_pages": 0, "lag_ms": 0, "leased": True}
            ],
            "time": _EXAMPLE_TIME,
            "source": "local",
            "generation": 1,
        },
    ),
    "ChangeRequest": request(
        {"tags": _or_null(list_of(_PARENT, limits.PARENTS_MAX)), "data": {}},
        example={"tags": ["user/ann"], "data": {"a": 1}},
    ),
    "ChangeId": record({"_id": _INTEGER}, example={"_id": 43008}),
    "Change": record(_CHANGE, "tags", example=_EXAMPLE_CHANGE),
    "Changes": record(
        {
            "changes": list_of(ref("Change")),
            "atStart": _BOOLEAN,
            "atEnd": _BOOLEAN,
            **dict.fromkeys(("floor", "head", "next"), _INTEGER),
            "lost": _BOOLEAN,
        },
        "lost",
        example={
            "changes": [_EXAMPLE_CHANGE],
            "atStart": True,
            "atEnd": True,
            "floor": 0,
            "head": 44031,
            "next": 44031,
        },
    ),
    "Links": record(
        dict.fromkeys(("changes", "diagnostics", "cluster", "config", "health"), _PLAIN)
    ),
    "Item": request(
        {"changeKind": ITEM_KIND, "changedResourceId": _OBJECT_ID, "event": one_of(*_POSTED)},
        *("changeKind", "changedResourceId"),
        example={"changeKind": EXAMPLE_KIND, "changedResourceId": "vm-7"},
    ),
    "Items": {**list_of(ref("Item"), limits.REQUEST_OPERATIONS_MAX), "minItems": 1},
    "ObjectList": record(
        {"objects": list_of(ref("FeedObject")), "next": _or_null(_PLAIN)},
        example={"objects": [EXAMPLE_OBJECT], "next": None},
    ),
    "ChangesConfiguration": request(
        {
            "minPurgeRecords": _or_null(_INTEGER),
            **dict.fromkeys(("minPurgeDuration", "electionTimeout", "heartbeatTimeout"), _DURATION),
            "webHooks": _or_null(list_of({"type": "object"}, limits.HOOKS_MAX)),
        },
        example={"minPurgeRecords": 1000, "minPurgeDuration": "72h"},
    ),
    "HealthMark": request({"up": _PLAIN}, example={"up": "true"}),
    "HealthMarkError": {
        "anyOf": [
            ref("ChangesError"),
            list_of(record({"fieldNames": _TEXTS, "classification": _PLAIN, "message": _PLAIN})),
        ]
    },
    "Cluster": record(
        {"clusterId": _PLAIN, "members": ref("Members")},
        example={"clusterId": "prod", "members": {"1": "feed.example.com"}},
    ),
    "Members": {
        "type": "object",
        "additionalProperties": _PLAIN,
        "examples": [{"1": "feed.example.com"}],
    },
    "Diagnostics": {
        "type": "object",
        "examples": [{"arch": "x86_64", "os": "linux", "maxprocs": "2"}],
    },
    "JsonSchema": {"type": "object", "examples": [{"$schema": DIALECT, "type": "object"}]},
    **{
        EVENTS[name]: {**schema, "title": EVENTS[name], "description": schema["title"]}
        for name, schema in _envelopes(ref("FeedObject")).items()
    },
}
