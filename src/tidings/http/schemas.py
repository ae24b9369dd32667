"""The schemas of events and errors, which routes, streams, WebSockets and webhooks share.

`GET /schemas/{format}` serves those of events.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from tidings.core.errors import UnknownFeed
from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, FORMATS, TIDINGS
from tidings.http import wire
from tidings.http.json_schema import object_schema, schema_of
from tidings.http.wire import (
    JSON,
    UNSET,
    Example,
    FeedObject,
    Fields,
    Kind,
    Schema,
    Text,
    Time,
    Unset,
)

SCHEMA_TYPE = "application/schema+json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SLOT = wire.EXAMPLE_CURSOR[8:]
_CLOSED = {"additionalProperties": False}
_SEQUENCE = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
_OR_NULL = Kind({"anyOf": [_SEQUENCE, {"type": "null"}]})
_TYPES = wire.one_of(*(f"tidings.{name}" for name in wire.EVENT_NAMES))

Cursor = Annotated[
    str, Kind({"type": "string", "pattern": "^(?:[0-9a-f]{24}|1)$"}), Example(wire.EXAMPLE_CURSOR)
]
EventName = Annotated[str, wire.one_of(*wire.EVENT_NAMES), Example("update")]
SequenceNumber = Annotated[str, Kind(_SEQUENCE), Example(_SLOT)]


class FeedEvent(
    Fields,
    keywords={"title": "FeedEvent", "description": "an event of a feed", **_CLOSED},
    example={"id": wire.EXAMPLE_CURSOR, "event": "update", "data": wire.EXAMPLE_OBJECT},
):
    id: Cursor
    event: EventName
    data: FeedObject | Unset = UNSET
    traceparent: Text | Unset = UNSET


class CloudEvent(
    Fields,
    keywords={
        "title": "CloudEvent",
        "description": "an event of a feed in CloudEvents 1.0",
        "dependentRequired": {"data": ["datacontenttype", "subject"]},
        **_CLOSED,
    },
):
    specversion: Annotated[str, wire.const("1.0")]
    id: Annotated[Text, Example(wire.EXAMPLE_CURSOR)]
    source: Annotated[
        str, Kind({"type": "string", "pattern": "^/feeds/"}), Example(f"/feeds/{wire.EXAMPLE_FEED}")
    ]
    type: Annotated[
        str,
        wire.one_of(*(f"tidings.{name}" for name in wire.EVENT_NAMES)),
        Example("tidings.update"),
    ]
    subject: Annotated[Text, Example("order/o-1024")] | Unset = UNSET
    time: Annotated[Time, Example(wire.EXAMPLE_TIME)] | Unset = UNSET
    datacontenttype: Annotated[str, wire.const(JSON), Example(JSON)] | Unset = UNSET
    data: Annotated[FeedObject, Example(wire.EXAMPLE_OBJECT)] | Unset = UNSET
    cursor: Cursor
    sequence: SequenceNumber | Unset = UNSET
    traceparent: Text | Unset = UNSET


class DebeziumSource(Fields, name="", keywords=_CLOSED):
    version: Annotated[Text, Example("0.1.0")]
    connector: Annotated[str, wire.const("tidings")]
    name: Annotated[Text, Example(wire.EXAMPLE_FEED)]
    ts_ms: wire.Ms
    snapshot: Annotated[str, wire.one_of("true", "false"), Example("false")]
    db: Annotated[Text, Example(wire.EXAMPLE_FEED)]
    table: Annotated[str | None, Example("order")]
    sequence: Annotated[str | None, _OR_NULL, Example(_SLOT)] | Unset = UNSET
    cursor: Cursor | Unset = UNSET
    event: EventName | Unset = UNSET
    traceparent: Text | Unset = UNSET


class DebeziumEvent(
    Fields,
    keywords={
        "title": "DebeziumEvent",
        "description": "an event of a feed as the value of a change event of Debezium",
        **_CLOSED,
    },
):
    before: FeedObject | None
    after: Annotated[FeedObject | None, Example(wire.EXAMPLE_OBJECT)]
    source: DebeziumSource
    op: Annotated[str, wire.one_of("c", "u", "d", "r", "t", "m"), Example("u")]
    ts_ms: wire.Ms
    transaction: Annotated[Any, Kind({"type": ["object", "null"]}), Example(None)] | Unset = UNSET
    message: dict[str, Any] | Unset = UNSET


EVENTS: dict[str, type[Fields]] = {
    TIDINGS: FeedEvent,
    CLOUDEVENTS: CloudEvent,
    DEBEZIUM: DebeziumEvent,
}
assert {*FORMATS} == {*EVENTS}


def schema_document(name: str) -> Schema | None:
    """Return the schema of the format *name* as a separate document, or None if it is unknown."""
    if name not in EVENTS:
        return None
    of_object = {**object_schema(FeedObject)}
    del of_object["examples"]
    schema = object_schema(EVENTS[name])
    text = json.dumps({**schema, "title": schema.pop("description")})
    complete = text.replace(json.dumps(schema_of(FeedObject)), json.dumps(of_object))
    return {"$schema": DIALECT, **json.loads(complete)}


class ErrorFields(
    Fields, name="", example=UnknownFeed("does not exist", field="feed", value="order").body()
):
    code: Annotated[Text, "stable; see the examples of the response"]
    message: Annotated[Text, "the field and the rule, for people"]
    field: Annotated[str, "the part of the request, or empty"]
    value: Annotated[str, "as Python shows it, shortened; or empty"]
    rule: Annotated[Text, "the rule that the value broke"]
    master: Annotated[str, "of a chained feed: where to post"] | Unset = UNSET
    floor: Annotated[int, "the first page of the log"] | Unset = UNSET


class Error(Fields):
    error: ErrorFields


class ChangesError(Fields):
    """An error of the routes of changeagent."""

    error: Annotated[str, Example("Invalid Node ID: x")]
    floor: int | Unset = UNSET
