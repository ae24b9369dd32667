"""The JSON Schema of an event in each format (`core.model.envelopes`). Data only."""

from __future__ import annotations

from typing import Any

from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, FORMATS, TIDINGS

Schema = dict[str, Any]

SCHEMA_TYPE = "application/schema+json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Schema = {"type": "string", "minLength": 1}
_CURSOR: Schema = {"type": "string", "pattern": "^(?:[0-9a-f]{24}|1)$"}
_SEQUENCE: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
_EVENTS = ["insert", "update", "delete", "leave", "reset", "live"]
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
        "change": {"const": True},
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


def served(name: str) -> Schema | None:
    """Return the schema of the format *name* as a separate document, or None if it is unknown."""
    schema = ENVELOPES.get(name)
    return None if schema is None else {"$schema": DIALECT, **schema}
