"""What WebSocket clients say: one JSON object with an `action`, checked into values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidings.core import limits
from tidings.core.errors import InvalidCursor, InvalidMessage, Rejected, TooLarge
from tidings.core.model import cursors, filters
from tidings.core.model.events import GZIP
from tidings.core.model.feeds import DEFAULT_FEED, check_known
from tidings.core.model.json_body import decode_json
from tidings.core.websocket.session import Act

_NOW = cursors.Now()


@dataclass(frozen=True, slots=True)
class Message:
    """
    *cursor* is as the client wrote it; *at* is what it means. *leave*: it asked for leaves, also
    where *filter* names nothing that could be left. *encoding* is one that we know, or "".
    *traced*: it asked for traces.
    """

    act: Act
    feed: str = ""
    filter: filters.Filter = filters.EVERYTHING
    cursor: str = ""
    at: cursors.Cursor = _NOW
    password: str | None = field(default=None, repr=False)
    leave: bool = False
    encoding: str = ""
    traced: bool = False


def parse(text: str, known_feeds: frozenset[str]) -> Message:
    """
    Raises:
        InvalidMessage, InvalidCursor, InvalidFilter, InvalidFeed, UnknownFeed, TooLarge: see
            the rule in the error.
    """
    raw = _object(text)
    act = _act(raw.get("action"))
    if act not in (Act.SUBSCRIBE, Act.RESUME):
        return Message(act)
    cursor, leave = _cursor(raw, act), _switch(raw, "leave")
    return Message(
        act,
        check_known(_text(raw, "feed", DEFAULT_FEED), known_feeds),
        filters.from_lists(raw, InvalidMessage, leave=leave),
        cursor,
        cursors.parse(cursor),
        _password(raw),
        leave,
        _encoding(raw),
        _switch(raw, "trace"),
    )


def act_of(text: str) -> Act:
    """
    What *text* asks for, whatever else is in it.

    Raises:
        InvalidMessage, TooLarge: it is no message of ours.
    """
    return _act(_object(text).get("action"))


def _object(text: str) -> dict[str, Any]:
    """Its errors do not repeat the text: it may hold a password."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > limits.MESSAGE_BYTES_MAX:
        rule = f"holds at most {limits.MESSAGE_BYTES_MAX} bytes, got {len(encoded)}"
        raise TooLarge(rule, field="message")
    try:
        raw = decode_json(encoded, "message")
    except Rejected as error:
        raise InvalidMessage(error.rule, field="message") from None
    if not isinstance(raw, dict):
        raise InvalidMessage("must be a JSON object", field="message")
    return raw


def _act(name: object) -> Act:
    for act in Act:
        if act.value == name:
            return act
    rule = f"must be one of {', '.join(act.value for act in Act)}"
    raise InvalidMessage(rule, field="action", value=name)


def _text(raw: dict[str, Any], field: str, default: str) -> str:
    value = raw.get(field, default)
    if not isinstance(value, str):
        raise InvalidMessage("must be a string", field=field, value=value)
    return value


def _password(raw: dict[str, Any]) -> str | None:
    password = raw.get("password")
    if password is not None and not isinstance(password, str):
        raise InvalidMessage("must be a string", field="password")
    return password


def _encoding(raw: dict[str, Any]) -> str:
    """One that a later release may know is none: its client reads plain messages, too."""
    return GZIP if _text(raw, "encoding", "") == GZIP else ""


def _switch(raw: dict[str, Any], field: str) -> bool:
    value = raw.get(field)
    if value is not None and not isinstance(value, bool):
        raise InvalidMessage("must be true or false", field=field, value=value)
    return value is True


def _cursor(raw: dict[str, Any], act: Act) -> str:
    if act is Act.SUBSCRIBE:
        return _text(raw, "from", cursors.NOW)
    cursor = _text(raw, "cursor", "")
    if not cursor:
        raise InvalidCursor("is required to resume", field="cursor", value=raw.get("cursor"))
    return cursor
