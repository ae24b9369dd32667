"""Store the body of a request as messages in the log, and return messages and offsets to readers.

Each message is an operation with the message in `data`. JSON is stored as its value, text as
`{"text":...}`, and other content as `{"base64":...}`. A large body that is not JSON is split into
several messages.

An offset is a position in the feed. It has the digits of an event id (`model.cursors`) in another
order, so that offsets can be sorted as text: 10 digits of the page, 6 of the slot, and 8 of the
commit time.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.durable_streams.stream import InvalidStream
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.json_body import JSON_TYPE, check_count, check_size, decode_array
from tidings.core.model.operations import decode, is_erased, line_from, to_canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.model.pages import Page


BEGINNING, NOW = "-1", "now"
_EPOCH_MS = 1_728_432_000_000  # 2024-10-09, the epoch that Durable Streams sets for cursors
_OFFSET = re.compile(r"([0-9a-f]{10})([0-9a-f]{6})([0-9a-f]{8})", re.ASCII)


def encode_offset(place: Place) -> str:
    return f"{place.page:010x}{place.slot:06x}{place.seconds:08x}"


def parse_offset(text: str) -> Place:
    """Return the place of the offset *text*.

    Raises:
        InvalidStream: *text* is not an offset.
    """
    match = _OFFSET.fullmatch(text)
    page, slot, seconds = (int(each, 16) for each in match.groups()) if match else (0, -1, 0)
    if not 0 <= slot <= PAGE_END:
        rule = f"must be an offset that the server sent, {BEGINNING} or {NOW}"
        raise InvalidStream(rule, field="offset", value=text)
    return Place(page, slot, seconds)


def live_cursor(given: str, now_ms: int) -> int:
    """Return the cursor for a live reader that sent the cursor *given*, "" if it sent none.

    The cursor ascends with time and is higher than *given*, so that no cache returns the previous
    response.
    """
    current = (now_ms - _EPOCH_MS) // (limits.STREAM_CURSOR_S * 1000)
    is_one = given.isascii() and given.isdigit() and len(given) <= limits.STREAM_CURSOR_DIGITS_MAX
    return max(current, int(given) + 1) if is_one else current


TYPE = "durable-stream"  # the type of a stream as an object of the feed
_BREAK = re.compile("\r\n|\r|\n")
# The maximum size of `data` in an operation, in bytes. The operation also has the name of the
# stream, of which JSON may escape each byte as six bytes, and other fields (512 bytes).
_ROOM = limits.OPERATION_BYTES_MAX - 6 * limits.ID_BYTES_MAX - 512
_BASE64_BYTES = _ROOM // 4 * 3


def lines_from(name: str, media_type: str, body: bytes, now_ms: int) -> list[str]:
    """Return the lines that append *body* to the stream *name*; [] for an empty JSON array.

    Raises:
        InvalidOperation, TooLarge: the log cannot store *body*.
    """
    check_size(body)
    return [
        line_from(
            {"event": "update", "type": TYPE, "id": name, "data": data},
            now_ms=now_ms,
            where=f"messages[{at}].",
        )
        for at, data in enumerate(_data_of(media_type, body))
    ]


def deletion(name: str, now_ms: int) -> str:
    """Return the line of the log that deletes the stream *name*."""
    return line_from({"event": "delete", "type": TYPE, "id": name}, now_ms=now_ms)


def _data_of(media_type: str, body: bytes) -> Sequence[Any]:
    if media_type == JSON_TYPE:
        value = decode_array(body)
        messages = value if isinstance(value, list) else [value]
        check_count(len(messages))
        return messages
    if is_text(media_type):
        try:
            return [{"text": piece} for piece in _pieces(body.decode())]
        except UnicodeDecodeError:
            pass  # the body is not UTF-8, so store it as base64
    return [
        {"base64": base64.b64encode(body[at : at + _BASE64_BYTES]).decode()}
        for at in range(0, len(body), _BASE64_BYTES)
    ]


def _pieces(text: str) -> Iterator[str]:
    """Yield *text* in pieces that fit into an operation."""
    if len(to_canonical_json(text).encode()) <= _ROOM:
        yield text
        return
    half = len(text) // 2
    yield from _pieces(text[:half])
    yield from _pieces(text[half:])


def is_text(media_type: str) -> bool:
    return media_type.startswith("text/")


def is_textual(media_type: str) -> bool:
    """Return True if event streams send content of *media_type* as text, not as base64."""
    return is_text(media_type) or media_type == JSON_TYPE


def body_of(media_type: str, data: Sequence[Any]) -> bytes:
    """Return the body of a response that has messages with these *data*."""
    if media_type == JSON_TYPE:
        return f"[{','.join(map(to_canonical_json, data))}]".encode()
    return b"".join(
        each["text"].encode() if "text" in each else base64.b64decode(each["base64"])
        for each in data
    )


def data_of(page: Page, first: int) -> list[Any]:
    """Return the data of the messages on *page* from slot *first* on.

    The page has messages of one stream, and no other operations. Erased messages are left out.
    """
    return [decode(line).get("data") for _, line in page.entries(first) if not is_erased(line)]


def event(name: str, text: str) -> str:
    """Return the event *name* with *text*, encoded so that no line is parsed as another field."""
    lines = (f"data:{' ' if line.startswith(' ') else ''}{line}\n" for line in _BREAK.split(text))
    return f"event: {name}\n{''.join(lines)}\n"


def data_event(media_type: str, data: Sequence[Any]) -> str:
    """Return the event for messages with these *data*; there must be at least one message."""
    body = body_of(media_type, data)
    if is_textual(media_type):
        return event("data", body.decode(errors="replace"))
    return event("data", base64.b64encode(body).decode())
