"""Encode one event as a line of JSON, in the project's own format or one of third-party tools.

The format `tidings` is the project's own, as in WebSocket messages. `cloudevents` is the structured
JSON of CloudEvents 1.0. `debezium` is the value of a Debezium change event, without a schema. The
JSON Schemas of the formats are in `http.schemas`.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tidings.core.errors import InvalidFilter
from tidings.core.model import timestamps
from tidings.core.model.events import (
    ERASE,
    LEAVE,
    NO_OPTIONS,
    EventOptions,
    to_traced_json,
    to_traced_sse,
)
from tidings.core.model.operations import to_canonical_json
from tidings.core.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.effects import Clock
    from tidings.core.model.events import Event

    Encode = Callable[[Event], str]

TIDINGS, CLOUDEVENTS, DEBEZIUM = "tidings", "cloudevents", "debezium"
FORMATS = (TIDINGS, CLOUDEVENTS, DEBEZIUM)
_ROW_DIGITS = "89abcdef"  # the slot of a position in a replication begins with one of these digits
_DIGEST_CHARS = 16  # 64 bits, enough to avoid collisions among the rows that share an id
_OPS = {
    "insert": "c",
    "update": "u",
    "delete": "d",
    LEAVE: "d",
    ERASE: "d",
    "reset": "t",
    "live": "m",
}
_SNAPSHOT = "r"


def check_format(text: str | None) -> str:
    """Return the format named by *text*; the default is `tidings`.

    Raises:
        InvalidFilter: the format is unknown.
    """
    if text in (None, "", *FORMATS):
        return text or TIDINGS
    raise InvalidFilter(f"must be one of {', '.join(FORMATS)}", field="format", value=text)


def encoder(name: str, feed: str, clock: Clock) -> Encode:
    """Return a function that encodes an event of *feed* in the format *name*.

    The function returns one line without its line end.
    """
    if name == CLOUDEVENTS:
        return lambda event: _cloudevent(event, feed, clock)
    if name == DEBEZIUM:
        return lambda event: _debezium(event, feed, clock)
    return to_traced_json


def writer(
    name: str, feed: str, clock: Clock, options: EventOptions, *, lines: bool
) -> Encode | None:
    """Return a function that encodes the events of a stream, or None.

    If *lines* is True, each event becomes a line of NDJSON, otherwise an SSE block. Return None for
    the format `tidings` in SSE blocks without options, for which the caller has a faster encoder.
    """
    if name == TIDINGS and not lines and options == NO_OPTIONS:
        return None
    encode = encoder(name, feed, clock)

    def write(event: Event) -> str:
        sent = options.apply(event)
        if lines:
            return f"{encode(sent)}\n"
        return to_traced_sse(sent if name == TIDINGS else sent._replace(data=encode(sent)))

    return write


def is_row(event: Event) -> bool:
    """Return True if *event* is a row of a replication. Several rows may have the same id."""
    return len(event.id) == 24 and event.id[18] in _ROW_DIGITS


def unique_id(event: Event, clock: Clock) -> str:
    """Return an id that is unique in the feed and is the same when the event is sent again.

    The id of a row contains a digest of the row, because rows may have the same event id. Only
    `reset` and `live` get a new id each time they are sent.
    """
    if not event.data:
        return f"{event.name}-{clock()}"
    if not is_row(event):
        return event.id
    sent = f"{event.name} {event.data}".encode()
    return f"{event.id}-{sha256(sent).hexdigest()[:_DIGEST_CHARS]}"


def _cloudevent(event: Event, feed: str, clock: Clock) -> str:
    attributes: dict[str, str] = {
        "specversion": "1.0",
        "id": unique_id(event, clock),
        "source": f"/feeds/{feed}",
        "type": f"tidings.{event.name}",
        "cursor": event.id,
    }
    if event.trace:
        attributes["traceparent"] = event.trace
    if not event.data:
        return to_canonical_json(attributes)
    fields = json.loads(event.data)
    attributes["subject"] = f"{fields['type']}/{fields['id']}"
    if "timestamp" in fields:  # missing in a `leave` that has only the type and id
        attributes["time"] = fields["timestamp"]
    if not is_row(event):
        attributes["sequence"] = event.id[8:]
    attributes["datacontenttype"] = "application/json"
    return f'{to_canonical_json(attributes)[:-1]},"data":{event.data}}}'


def _debezium(event: Event, feed: str, clock: Clock) -> str:
    now_ms = clock()
    fields: dict[str, Any] = json.loads(event.data) if event.data else {}
    row = is_row(event)
    op = _OPS[event.name]
    if row and op != "d":
        op = _SNAPSHOT
    changed = timestamps.to_ms(fields["timestamp"]) if "timestamp" in fields else now_ms
    source: dict[str, object] = {
        "version": VERSION,
        "connector": TIDINGS,
        "name": feed,
        "ts_ms": changed,
        "snapshot": "true" if row else "false",
        "db": feed,
        "table": fields.get("type"),
        "sequence": None if row or not fields else event.id[8:],
        "cursor": event.id,
        "event": event.name,
    }
    if event.trace:
        source["traceparent"] = event.trace
    before, after = (event.data, "null") if op == "d" else ("null", event.data or "null")
    message = ',"message":{"prefix":"live","content":null}' if op == "m" else ""
    return (
        f'{{"before":{before},"after":{after},"source":{to_canonical_json(source)},"op":"{op}",'
        f'"ts_ms":{now_ms},"transaction":null{message}}}'
    )
