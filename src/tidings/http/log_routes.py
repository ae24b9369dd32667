"""The routes that write and read the log, and those that describe the deployment.

They are declared here. `endpoints.producers`, `endpoints.status` and `streams` serve them, because
their requests and responses are not JSON objects, or those of another system.
"""

from __future__ import annotations

from typing import Any

from tidings.core import errors, limits
from tidings.core.auth.guard import INGEST, PUBLIC, PUBLISH, READ, REPLICATE
from tidings.core.model.envelopes import FORMATS
from tidings.core.model.filters import ERASURES, FIELDS
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.http.request import NotAcceptable, UnknownPath
from tidings.http.schemas import EVENTS, SCHEMA_TYPE
from tidings.http.wire import (
    EXAMPLE_CURSOR,
    EXAMPLE_END,
    ID,
    INTEGER,
    JSON,
    PLAIN,
    Routes,
    Schema,
    integer,
    json_of,
    ref,
    route,
)

STREAM = "text/event-stream"
SWITCH = ["true", "false"]
_EMPTY = {"allowEmptyValue": True}  # an empty value is one that was not given
_KEYED = ("Idempotency-Key",)
_POSTING = (errors.InvalidOperation, errors.InvalidKey, errors.KeyReused)
_CHAINED = (errors.Chained, errors.Yielded)
_COPIED = (errors.InvalidPagesRequest, errors.InvalidFilter, errors.LeaveNotKept)


def lines_of(schema: Schema, example: str) -> Schema:
    """Return the schema of text with a JSON value on each line."""
    return {
        **PLAIN,
        "contentMediaType": NDJSON_TYPE,
        "contentSchema": schema,
        "examples": [example],
    }


def _text(description: str, *examples: str, **more: Any) -> Schema:
    shown = {"examples": [*examples]} if examples else {}
    return {**PLAIN, "description": description, **shown, **more}


def _number(description: str, most: int | None = None, **more: Any) -> Schema:
    limit = {} if most is None else {"maximum": most}
    return {**INTEGER, **limit, "description": description, **more}


_WAIT = "seconds to wait if no entry is available"
_FILTER = dict.fromkeys(FIELDS, _text("values separated by commas, or a JSON array of strings"))
_COPY = {
    **_FILTER,
    "share": _text("a part of the objects (16.6)", "mod:4:0+1", "range:00000000-7fffffff"),
}
# The parameters of a stream in addition to the filter.
STREAM_OPTIONS = {
    "leave": _text("also send `leave` (6.5)", enum=SWITCH, **_EMPTY),
    ERASURES: _text("also send `erase` (22.4)", enum=SWITCH, **_EMPTY),
    "trace": _text("also send `traceparent` (6.9)", enum=SWITCH, **_EMPTY),
    "cursors": _text("also send blocks with only an id (7.7)", enum=SWITCH, **_EMPTY),
    "format": _text("the format of events (6.10)", enum=[*FORMATS], **_EMPTY),
    "lastEventId": _text(
        "the cursor, if the header Last-Event-ID cannot be sent", EXAMPLE_CURSOR, "0", "now"
    ),
}
STREAM_QUERY = {**_FILTER, **STREAM_OPTIONS}
_CHANGES_QUERY = {
    "since": _number("an id: the changes after it", **_EMPTY),
    "limit": _number("the maximum number of changes", limits.CHANGES_LIMIT_MAX, **_EMPTY),
    "block": _number(_WAIT, limits.CHANGES_BLOCK_S_MAX, **_EMPTY),
    "tag": _text("a change with this tag matches"),
    "strict": _text("410 if `since` is below the floor", enum=SWITCH),
}
_PAGES_QUERY = {
    "after": {
        **ID,
        **_EMPTY,
        "description": "the end of the last page; empty for the first one",
        "examples": [EXAMPLE_END],
    },
    **_COPY,
    "size": {
        **integer(1, limits.BATCH_BYTES_MAX).schema,
        "description": "the maximum size of the response in bytes",
    },
    "block": _number(_WAIT, limits.BATCH_BLOCK_S_MAX),
}
_ROWS_QUERY = {
    "bucket": _number("a bucket of the state", limits.BUCKETS - 1, required=True),
    "after": _text("the `after` of the previous rows"),
    **_COPY,
}

_EVENT_LINE = (
    f'{{"id":"{EXAMPLE_CURSOR}","event":"delete","data":{{"type":"order","id":"o-1024"}}}}\n'
)
_BLOCK = f'id: {EXAMPLE_CURSOR}\nevent: delete\ndata: {{"type":"order","id":"o-1024"}}\n\n'
_OPERATION_LINE = '{"event":"insert","type":"order","id":"o-1024"}\n'
_STREAMED: tuple[tuple[str, Schema], ...] = (
    (
        STREAM,
        {
            **PLAIN,
            "contentMediaType": STREAM,
            "description": "blocks with an `id`, an `event` and one line of `data` (7.3)",
            "examples": [_BLOCK],
        },
    ),
    (NDJSON_TYPE, lines_of({"anyOf": [ref(name) for name in EVENTS.values()]}, _EVENT_LINE)),
)
_PAGES: tuple[tuple[str, Schema], ...] = (
    (
        NDJSON_TYPE,
        lines_of(
            {"anyOf": [{"type": "object"}, {"type": "array", "items": {}}]},
            '{"floor":1,"head":42,"pages":0}\n',
        ),
    ),
)
_ANY_OBJECT: tuple[tuple[str, Schema], ...] = ((JSON, {"type": "object"}),)
_OPS = ("/", "/ops", "/feeds/{feed}/ops")


class PostRoutes(Routes, function="ingest"):
    post_operations = route(
        "POST",
        _OPS,
        INGEST,
        "4",
        summary="append operations",
        headers=(*_KEYED, "Prefer", "traceparent"),
        body=(
            (JSON, {"anyOf": [ref("Operation"), ref("Operations")]}),
            (NDJSON_TYPE, lines_of(ref("Operation"), _OPERATION_LINE)),
        ),
        more=(204,),
        empty=(204,),
        answers=json_of("OperationIds"),
        errors=(*_POSTING, *_CHAINED),
    )


class StreamRoutes(Routes, function="stream"):
    follow_feed = route(
        "GET",
        _OPS,
        READ,
        "7",
        summary="follow the feed",
        query=STREAM_QUERY,
        headers=("Last-Event-ID",),
        answers=_STREAMED,
        errors=(errors.InvalidCursor, errors.InvalidFilter, errors.LeaveNotKept, NotAcceptable),
        sends=("Last-Event-ID",),
    )


class StatusRoutes(Routes, function="report"):
    get_status = route(
        "GET",
        ("/status", "/feeds/{feed}/status"),
        PUBLIC,
        "9",
        summary="the status of the feed",
        answers=json_of("Status"),
        others=((503, *json_of("Status")[0]),),
    )
    get_openapi = route(
        "GET", "/openapi.json", PUBLIC, "9.7", summary="this document", answers=_ANY_OBJECT
    )
    get_asyncapi = route(
        "GET",
        "/asyncapi.json",
        PUBLIC,
        "9.9",
        summary="the messages of streams, WebSockets and webhooks, in AsyncAPI 3.0",
        answers=_ANY_OBJECT,
    )
    get_event_schema = route(
        "GET",
        "/schemas/{format}",
        PUBLIC,
        "6.10",
        summary="the JSON Schema of an event",
        answers=((SCHEMA_TYPE, ref("JsonSchema")),),
        errors=(UnknownPath,),
    )


class ListRoutes(Routes, function="list"):
    list_changes = route(
        "GET",
        ("/changes", "/feeds/{feed}/changes"),
        READ,
        "12.4",
        summary="list changes",
        query=_CHANGES_QUERY,
        answers=json_of("Changes"),
        errors=(errors.InvalidChange, errors.BelowFloor),
    )
    get_change = route(
        "GET",
        ("/changes/{id}", "/feeds/{feed}/changes/{id}"),
        READ,
        "12.7",
        summary="one change",
        answers=json_of("Change"),
        errors=(errors.InvalidChange, errors.UnknownChange),
    )
    read_pages = route(
        "GET",
        "/feeds/{feed}/pages",
        REPLICATE,
        "16.3",
        summary="pages to copy",
        query=_PAGES_QUERY,
        answers=_PAGES,
        errors=(*_COPIED, errors.InvalidCursor, errors.OtherLog, errors.LogFellOff),
    )
    read_rows = route(
        "GET",
        "/feeds/{feed}/rows",
        REPLICATE,
        "16.7",
        summary="rows of the state",
        query=_ROWS_QUERY,
        answers=_PAGES,
        errors=_COPIED,
    )


class ChangeRoutes(Routes, function="propose"):
    post_change = route(
        "POST",
        ("/changes", "/feeds/{feed}/changes"),
        INGEST,
        "12.3",
        summary="append a change",
        headers=_KEYED,
        body=((JSON, {"anyOf": [ref("ChangeRequest"), {}]}),),  # any other value is the data
        answers=json_of("ChangeId"),
        errors=(errors.InvalidChange, *_POSTING, *_CHAINED, errors.RefusedByHook),
        others=((502, *json_of("ChangesError")[0]),),
    )


class ItemRoutes(Routes, function="publish"):
    publish_items = route(
        "POST",
        ("/changefeeds", "/feeds/{feed}/changefeeds"),
        PUBLISH,
        "13.2",
        summary="publish items",
        headers=(*_KEYED, "Prefer"),
        body=((JSON, {"anyOf": [ref("Item"), ref("Items")]}),),
        more=(204,),
        empty=(204,),
        answers=json_of("OperationIds"),
        errors=(errors.InvalidItem, *_POSTING, *_CHAINED),
    )


LOG_ROUTES: tuple[type[Routes], ...] = (
    PostRoutes,
    StreamRoutes,
    StatusRoutes,
    ListRoutes,
    ChangeRoutes,
    ItemRoutes,
)
