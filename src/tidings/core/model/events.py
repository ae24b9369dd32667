"""
Events as clients receive them: an id, a name and, but for `reset` and `live`, data.

The same events travel as SSE blocks and, many together, as WebSocket messages.
"""

from __future__ import annotations

import gzip
import json
from binascii import b2a_base64
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits
from tidings.core.model.operations import data_of, encoded, event_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


LEAVE = "leave"
GZIP = "gzip"  # the encoding of messages that a client may ask for
_LEVEL = 6  # of deflate, as pages have: level 9 takes twice the time for a hundredth
_WRAPPING_BYTES = len('{"events":[],"cursor":"0123456789abcdef01234567"}')


class Event(NamedTuple):
    """
    *data* is one line of JSON; empty for `reset` and `live`.

    *trace* is that of its page (`Page.trace`), which only those are told who ask for it.
    """

    id: str
    name: str
    data: str
    trace: str = ""


def of_line(id_prefix: str, slot: int, line: str, trace: str = "") -> Event:
    return Event(f"{id_prefix}{slot:06x}", event_of(line), data_of(line), trace)


def leave_of(event: Event) -> Event:
    """The same operation, told to those whose parents it took away."""
    return event._replace(name=LEAVE)


def veiled_leave_of(event: Event) -> Event:
    """The same, to those who may not see what is outside: which object it was."""
    fields = json.loads(event.data)
    return Event(event.id, LEAVE, encoded({"type": fields["type"], "id": fields["id"]}))


def to_sse(event: Event) -> str:
    """One SSE block; `reset` and `live` carry `{}` because browsers drop events without data."""
    return f"id: {event.id}\nevent: {event.name}\ndata: {event.data or '{}'}\n\n"


def to_traced_sse(event: Event) -> str:
    """The same with its trace, where it has one: a field that browsers leave out."""
    block = to_sse(event)
    return f"traceparent: {event.trace}\n{block}" if event.trace else block


def to_json(event: Event) -> str:
    data = f',"data":{event.data}' if event.data else ""
    return f'{{"id":"{event.id}","event":"{event.name}"{data}}}'


def with_trace(text: str, trace: str) -> str:
    """An event in JSON with its *trace*, where it has one."""
    return f'{text[:-1]},"traceparent":"{trace}"}}' if trace else text


def to_traced_json(event: Event) -> str:
    return with_trace(to_json(event), event.trace)


def pack(events: Iterable[str], cursor: str, encoding: str = "") -> Iterator[str]:
    """
    WebSocket messages `{"events":[...],"cursor":"..."}` from events in JSON, in order.

    Each stays within `limits.FRAME_BYTES_MAX` or holds a single event; the cursor stands on the
    last one only, behind everything it vouches for. No events: one message with the cursor alone.
    With an *encoding* that is known, each is base64 of itself where that is shorter.
    """
    packed = _pack(events, cursor)
    return map(_gzipped, packed) if encoding == GZIP else packed


def _gzipped(message: str) -> str:
    """Gateways carry text alone, hence base64; what it gains at a few hundred bytes is nothing."""
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
    """An answer to a client's message: `{"reply":"subscribed",...}`."""
    return json.dumps({"reply": kind, **fields}, separators=(",", ":"))


def error(body: dict[str, object]) -> str:
    """An error as a WebSocket message."""
    return json.dumps({"error": body}, separators=(",", ":"))
