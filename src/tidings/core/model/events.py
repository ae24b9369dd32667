"""Events as clients receive them, as SSE blocks or, in batches, as WebSocket messages.

Each event has an id and a name. Each event except `reset` and `live` also has data.
"""

from __future__ import annotations

import gzip
import json
from binascii import b2a_base64
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits
from tidings.core.model.filters import ERASURES
from tidings.core.model.operations import (
    ERASURE_MARK,
    data_of,
    event_of,
    to_canonical_json,
    without_details,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


LEAVE = "leave"
ERASE = "erase"
GZIP = "gzip"  # the encoding that a client may request for its messages
_LEVEL = 6  # deflate level, as for pages: level 9 takes twice the time to save 1 %
_WRAPPING_BYTES = len('{"events":[],"cursor":"0123456789abcdef01234567"}')


class Event(NamedTuple):
    """One event of a feed.

    *data* is one line of JSON, or empty for `reset` and `live`. *trace* is the trace of the page
    (`Page.trace`), which is sent only to clients that request traces.
    """

    id: str
    name: str
    data: str
    trace: str = ""


class EventOptions(NamedTuple):
    """The switches that change the events for a client, by name; `OPTIONS` has their meanings."""

    trace: bool = False

    def apply(self, event: Event) -> Event:
        """Return *event* as the client receives it."""
        return event if self.trace or not event.trace else event._replace(trace="")


NO_OPTIONS = EventOptions()
OPTIONS = {"trace": "also send `traceparent` (6.9)"}
assert (*OPTIONS,) == EventOptions._fields
# All switches of streams and of subscriptions. The first two are parts of their filters.
SWITCHES = {"leave": "also send `leave` (6.5)", ERASURES: "also send `erase` (22.4)", **OPTIONS}


def of_line(
    id_prefix: str, slot: int, line: str, trace: str = "", *, erasures: bool = False
) -> Event:
    """Return the event of the operation *line*.

    If *erasures* is True, an erasure is an event `erase`, as for clients that requested erasures.
    """
    event_id = f"{id_prefix}{slot:06x}"
    if line.endswith(ERASURE_MARK):
        return Event(event_id, *content_of(line, erasures=erasures), trace)
    return Event(event_id, event_of(line), data_of(line), trace)


def content_of(line: str, *, erasures: bool = False) -> tuple[str, str]:
    """Return the name and the data of the event of the operation *line*.

    If *line* records an erasure, this is an `erase` with the details of the erasure if *erasures*
    is True, and otherwise a `delete` without these details.
    """
    if not line.endswith(ERASURE_MARK):
        return event_of(line), data_of(line)
    if erasures:
        return ERASE, f"{data_of(line.removesuffix(ERASURE_MARK))}}}"
    return event_of(line), data_of(without_details(line))


def leave_of(event: Event) -> Event:
    """Return *event* as a `leave`, for clients that filter on a parent that the object lost."""
    return event._replace(name=LEAVE)


def redacted_leave_of(event: Event) -> Event:
    """Return *event* as a `leave` that contains only the type and id of the object.

    Clients receive this event if their key does not let them see the object any more.
    """
    fields = json.loads(event.data)
    return Event(event.id, LEAVE, to_canonical_json({"type": fields["type"], "id": fields["id"]}))


def to_sse(event: Event) -> str:
    """Return one SSE block. Without data, send `{}`, because browsers drop events without data."""
    return f"id: {event.id}\nevent: {event.name}\ndata: {event.data or '{}'}\n\n"


def to_traced_sse(event: Event) -> str:
    """Return one SSE block with the trace, if any, in a field that browsers ignore."""
    block = to_sse(event)
    return f"traceparent: {event.trace}\n{block}" if event.trace else block


def to_json(event: Event) -> str:
    data = f',"data":{event.data}' if event.data else ""
    return f'{{"id":"{event.id}","event":"{event.name}"{data}}}'


def to_traced_json(event: Event) -> str:
    text = to_json(event)
    return f'{text[:-1]},"traceparent":"{event.trace}"}}' if event.trace else text


def pack(events: Iterable[str], cursor: str, encoding: str = "") -> Iterator[str]:
    """Yield WebSocket messages `{"events":[...],"cursor":"..."}` from JSON *events*, in order.

    A message does not exceed `limits.FRAME_BYTES_MAX` unless it holds a single event. Only the last
    message has *cursor*, which is the position after all events. Without events, yield one message
    with an empty list and *cursor*. If *encoding* is `GZIP`, a message is compressed and
    base64-encoded if that makes the message shorter.
    """
    packed = _pack(events, cursor)
    return map(_gzip, packed) if encoding == GZIP else packed


def _gzip(message: str) -> str:
    """Return *message* compressed and in base64 if that is shorter, otherwise *message*.

    Base64 is needed because gateways transport only text.
    """
    plain = message.encode()
    if len(plain) < limits.GZIP_BYTES_MIN:
        return message
    encoded = b2a_base64(gzip.compress(plain, _LEVEL, mtime=0), newline=False).decode()
    return encoded if len(encoded) < len(plain) else message


def _pack(events: Iterable[str], cursor: str) -> Iterator[str]:
    batch: list[str] = []
    size = _WRAPPING_BYTES
    for event in events:
        length = len(event.encode()) + 1
        if batch and size + length > limits.FRAME_BYTES_MAX:
            yield f'{{"events":[{",".join(batch)}]}}'
            batch, size = [], _WRAPPING_BYTES
        batch.append(event)
        size += length
    yield f'{{"events":[{",".join(batch)}],"cursor":"{cursor}"}}'


def reply(kind: str, **fields: object) -> str:
    """Return the reply to a client's message, such as `{"reply":"subscribed",...}`."""
    return json.dumps({"reply": kind, **fields}, separators=(",", ":"))


def error(body: dict[str, object]) -> str:
    """Return *body* as an error message for a WebSocket."""
    return json.dumps({"error": body}, separators=(",", ":"))
