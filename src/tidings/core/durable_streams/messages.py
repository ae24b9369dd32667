"""
Messages: what a body becomes in the log, and how readers get it back.

Each message is an operation on one object of the stream, which holds it in `data`: of JSON the
value, of text `{"text":…}`, of everything else `{"base64":…}`. A body that is no JSON has no
messages of its own, so that a large one is cut.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.model.json_body import JSON_TYPE, check_count, check_size, decode_json
from tidings.core.model.operations import encoded, line_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.model.pages import Page

TYPE = "durable-stream"  # of the objects in the log
_BREAK = re.compile("\r\n|\r|\n")
# Beside the data an operation names the stream, each byte of it six times as long at most.
_ROOM = limits.OPERATION_BYTES_MAX - 6 * limits.ID_BYTES_MAX - 512
_BASE64_BYTES = _ROOM // 4 * 3


def lines_from(name: str, media_type: str, body: bytes, now_ms: int) -> list[str]:
    """
    The lines of the log for *body*, appended to the stream *name*; none of an empty array.

    Raises:
        InvalidOperation, TooLarge: the log cannot have it.
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
    """The line of the log that says that the stream *name* is gone."""
    return line_from({"event": "delete", "type": TYPE, "id": name}, now_ms=now_ms)


def _data_of(media_type: str, body: bytes) -> Sequence[Any]:
    if media_type == JSON_TYPE:
        value = decode_json(body, "body")
        messages = value if isinstance(value, list) else [value]
        check_count(len(messages))
        return messages
    if is_text(media_type):
        try:
            return [{"text": piece} for piece in _pieces(body.decode())]
        except UnicodeDecodeError:
            pass  # it is kept as it is all the same
    return [
        {"base64": base64.b64encode(body[at : at + _BASE64_BYTES]).decode()}
        for at in range(0, len(body), _BASE64_BYTES)
    ]


def _pieces(text: str) -> Iterator[str]:
    """*text* in pieces that are no longer than an operation may be."""
    if len(encoded(text).encode()) <= _ROOM:
        yield text
        return
    half = len(text) // 2
    yield from _pieces(text[:half])
    yield from _pieces(text[half:])


def is_text(media_type: str) -> bool:
    return media_type.startswith("text/")


def is_told_as_text(media_type: str) -> bool:
    """Whether event streams tell it as it is, and not in base64."""
    return is_text(media_type) or media_type == JSON_TYPE


def body_of(media_type: str, data: Sequence[Any]) -> bytes:
    """What a reader is told of messages that have *data*."""
    if media_type == JSON_TYPE:
        return f"[{','.join(map(encoded, data))}]".encode()
    return b"".join(_bytes_of(each) for each in data)


def _bytes_of(data: dict[str, str]) -> bytes:
    return data["text"].encode() if "text" in data else base64.b64decode(data["base64"])


def data_of(page: Page, first: int) -> list[Any]:
    """Of each message on *page*, which holds nothing else, from slot *first* on."""
    return [json.loads(line).get("data") for _, line in page.entries(first)]


def event(name: str, text: str) -> str:
    """A block of an event stream; no line of *text* can be taken for a field of another one."""
    lines = (f"data:{' ' if line.startswith(' ') else ''}{line}\n" for line in _BREAK.split(text))
    return f"event: {name}\n{''.join(lines)}\n"


def data_event(media_type: str, data: Sequence[Any]) -> str:
    """*data*, which is not empty, as an event."""
    body = body_of(media_type, data)
    if is_told_as_text(media_type):
        return event("data", body.decode(errors="replace"))
    return event("data", base64.b64encode(body).decode())
