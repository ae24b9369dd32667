"""The routes that write and read the log, and those that describe the deployment.

They are declared here. `endpoints.producers`, `endpoints.status` and `streams` serve them, because
their requests and responses are not JSON objects, or those of another system.
"""

from __future__ import annotations

from typing import Annotated, Any

from tidings.core import errors, limits
from tidings.core.auth.guard import INGEST, PUBLIC, PUBLISH, READ, REPLICATE
from tidings.core.maintenance.status import COUNTERS, LAGGING, OK, STALLED, UNAVAILABLE
from tidings.core.model.envelopes import FORMATS
from tidings.core.model.events import SWITCHES
from tidings.core.model.filters import FIELDS
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.http import wire
from tidings.http.json_schema import schema_of
from tidings.http.request import NotAcceptable, UnknownPath
from tidings.http.schemas import (
    DIALECT,
    SCHEMA_TYPE,
    ChangesError,
    CloudEvent,
    DebeziumEvent,
    FeedEvent,
)
from tidings.http.wire import (
    JSON,
    PLAIN,
    UNSET,
    Example,
    Fields,
    Kind,
    Routes,
    Schema,
    Unset,
    json_of,
    route,
)

STREAM = "text/event-stream"
_SWITCH = ["true", "false"]
_EMPTY = {"allowEmptyValue": True}  # an empty value is one that was not given
_KEYED = ("Idempotency-Key",)
_POSTING = (errors.InvalidOperation, errors.InvalidKey, errors.KeyReused)
_CHAINED = (errors.Chained, errors.Yielded)
_COPIED = (errors.InvalidPagesRequest, errors.InvalidFilter, errors.LeaveNotKept)


def lines_of(hint: Any, example: str) -> Schema:
    """Return the schema of text with a JSON value of the type *hint* on each line."""
    return {
        **PLAIN,
        "contentMediaType": NDJSON_TYPE,
        "contentSchema": schema_of(hint),
        "examples": [example],
    }


def _text(description: str, *examples: str, **more: Any) -> Schema:
    shown = {"examples": [*examples]} if examples else {}
    return {**PLAIN, "description": description, **shown, **more}


def _number(description: str, maximum: int | None = None, **more: Any) -> Schema:
    limit = {} if maximum is None else {"maximum": maximum}
    return {**wire.INTEGER, **limit, "description": description, **more}


_WAIT = "seconds to wait if no entry is available"
_FILTER = dict.fromkeys(FIELDS, _text("values separated by commas, or a JSON array of strings"))
_COPY = {
    **_FILTER,
    "share": _text("a part of the objects (16.6)", "mod:4:0+1", "range:00000000-7fffffff"),
}
STREAM_QUERY = {
    **_FILTER,
    **{name: _text(text, enum=_SWITCH, **_EMPTY) for name, text in SWITCHES.items()},
    "cursors": _text("also send blocks with only an id (7.7)", enum=_SWITCH, **_EMPTY),
    "format": _text("the format of events (6.10)", enum=[*FORMATS], **_EMPTY),
    "lastEventId": _text(
        "the cursor, if the header Last-Event-ID cannot be sent", wire.EXAMPLE_CURSOR, "0", "now"
    ),
}
_CHANGES_QUERY = {
    "since": _number("an id: the changes after it", **_EMPTY),
    "limit": _number("the maximum number of changes", limits.CHANGES_LIMIT_MAX, **_EMPTY),
    "block": _number(_WAIT, limits.CHANGES_BLOCK_S_MAX, **_EMPTY),
    "tag": _text("a change with this tag matches"),
    "strict": _text("410 if `since` is below the floor", enum=_SWITCH),
}
_PAGES_QUERY = {
    "after": {
        **wire.ID,
        **_EMPTY,
        "description": "the end of the last page; empty for the first one",
        "examples": [wire.EXAMPLE_END],
    },
    **_COPY,
    "size": {
        **wire.integer(1, limits.BATCH_BYTES_MAX).schema,
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
    f'{{"id":"{wire.EXAMPLE_CURSOR}","event":"delete","data":{{"type":"order","id":"o-1024"}}}}\n'
)
_BLOCK = f'id: {wire.EXAMPLE_CURSOR}\nevent: delete\ndata: {{"type":"order","id":"o-1024"}}\n\n'
_OPERATION_LINE = '{"event":"insert","type":"order","id":"o-1024"}\n'
_PAGE_LINE = '{"floor":1,"head":42,"pages":0}\n'
_ANY_OBJECT = json_of({"type": "object"})
_OPS = ("/", "/ops", "/feeds/{feed}/ops")
_STREAMED = (
    (
        STREAM,
        {
            **PLAIN,
            "contentMediaType": STREAM,
            "description": "blocks with an `id`, an `event` and one line of `data` (7.3)",
            "examples": [_BLOCK],
        },
    ),
    (NDJSON_TYPE, lines_of(FeedEvent | CloudEvent | DebeziumEvent, _EVENT_LINE)),
)
_ROWS = lines_of({"anyOf": [{"type": "object"}, {"type": "array", "items": {}}]}, _PAGE_LINE)
_PAGES = ((NDJSON_TYPE, _ROWS),)

Parent = Annotated[str, wire.text_of(limits.PARENT_BYTES_MAX)]
TypeName = Annotated[str, wire.text_of(limits.TYPE_BYTES_MAX)]
ObjectId = Annotated[str, wire.text_of(limits.ID_BYTES_MAX)]
Posted = Annotated[str, wire.one_of(*wire.EVENT_NAMES[:3])]
Tags = Annotated[list[Parent], wire.most(limits.TAGS_MAX)]
_MANY = Kind({"minItems": 1, "maxItems": limits.REQUEST_OPERATIONS_MAX})


class Operation(Fields, example={"event": "update", **wire.EXAMPLE_OBJECT}):
    event: Posted
    type: TypeName
    id: ObjectId
    parents: Annotated[list[Parent], wire.most(limits.PARENTS_MAX)] | Unset = UNSET
    timestamp: wire.Time | Unset = UNSET
    tags: Tags | Unset = UNSET
    changed: Tags | Unset = UNSET
    data: Any = UNSET


class OperationIds(Fields):
    ids: Annotated[list[wire.EntryId], Example([wire.EXAMPLE_CURSOR])]


Operations = Annotated[list[Operation], _MANY, wire.Name("Operations")]


class Frontier(Fields, name=""):
    cursor: Annotated[wire.EntryId, Example(wire.EXAMPLE_END)]
    page: Annotated[int, Example(42)]
    exact: Annotated[bool, Example(True)]


class FollowerStatus(Fields, name=""):
    name: Annotated[str, Example("state")]
    checkpoint: Annotated[int, Example(42)]
    lag_pages: Annotated[int, Kind({"type": "integer", "format": "int64"})]
    lag_ms: int
    leased: Annotated[bool, Example(True)]


class Status(Fields):
    status: Annotated[str, wire.one_of(OK, LAGGING, STALLED, UNAVAILABLE)]
    __annotations__ |= dict.fromkeys(COUNTERS, Annotated[int | None, Example(0)])
    feed: Annotated[str, Example(wire.EXAMPLE_FEED)]
    feeds: Annotated[list[str], Example([wire.EXAMPLE_FEED])] | Unset = UNSET
    head: Annotated[int, Example(42)] | Unset = UNSET
    frontier: Frontier | Unset = UNSET
    floor: Annotated[int, Example(1)] | Unset = UNSET
    followers: list[FollowerStatus] | Unset = UNSET
    time: wire.Time
    source: Annotated[str, Example("local")] | Unset = UNSET
    generation: Annotated[int, Kind({"type": "integer", "minimum": 1}), Example(1)] | Unset = UNSET
    relay: str | Unset = UNSET
    problems: list[str] | Unset = UNSET


class ChangeRequest(Fields, example={"tags": ["user/ann"], "data": {"a": 1}}):
    tags: Annotated[list[Parent], wire.most(limits.PARENTS_MAX)] | Unset | None = UNSET
    data: Any = UNSET


class ChangeId(Fields):
    _id: Annotated[int, Example(43008)]


class Change(Fields):
    _id: Annotated[int, Example(43008)]
    _ts: Annotated[int, Example(wire.EXAMPLE_MS * 1_000_000)]
    tags: Annotated[list[str], Example(["user/ann"])] | Unset = UNSET
    data: Annotated[Any, Example({"a": 1})]


class Changes(Fields):
    changes: list[Change]
    atStart: Annotated[bool, Example(True)]
    atEnd: Annotated[bool, Example(True)]
    floor: int
    head: Annotated[int, Example(44031)]
    next: Annotated[int, Example(44031)]
    lost: bool | Unset = UNSET


class ChangeKind(Fields, name=""):
    resource: Annotated[TypeName, Example("vm")]
    subResources: Annotated[Tags, Example(["nic"])] | Unset = UNSET


class Item(Fields):
    changeKind: ChangeKind
    changedResourceId: Annotated[ObjectId, Example("vm-7")]
    event: Posted | Unset = UNSET


Items = Annotated[list[Item], _MANY, wire.Name("Items")]
EventSchema = Annotated[
    dict[str, Any], wire.Name("JsonSchema"), Example({"$schema": DIALECT, "type": "object"})
]


class PostRoutes(Routes, function="ingest"):
    post_operations = route(
        "POST",
        _OPS,
        INGEST,
        "4",
        summary="append operations",
        headers=(*_KEYED, "Prefer", "traceparent"),
        body=(
            (JSON, Operation | Operations),
            (NDJSON_TYPE, lines_of(Operation, _OPERATION_LINE)),
        ),
        more=(204,),
        empty=(204,),
        answers=json_of(OperationIds),
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
        answers=json_of(Status),
        others=((503, JSON, Status),),
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
        answers=((SCHEMA_TYPE, EventSchema),),
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
        answers=json_of(Changes),
        errors=(errors.InvalidChange, errors.BelowFloor),
    )
    get_change = route(
        "GET",
        ("/changes/{id}", "/feeds/{feed}/changes/{id}"),
        READ,
        "12.7",
        summary="one change",
        answers=json_of(Change),
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
        body=json_of(ChangeRequest | Any),  # any other value is the data
        answers=json_of(ChangeId),
        errors=(errors.InvalidChange, *_POSTING, *_CHAINED, errors.RefusedByHook),
        others=((502, JSON, ChangesError),),
    )


class ItemRoutes(Routes, function="publish"):
    publish_items = route(
        "POST",
        ("/changefeeds", "/feeds/{feed}/changefeeds"),
        PUBLISH,
        "13.2",
        summary="publish items",
        headers=(*_KEYED, "Prefer"),
        body=json_of(Item | Items),
        more=(204,),
        empty=(204,),
        answers=json_of(OperationIds),
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
