"""`lines_from` by the compiled parser and by the rules in Python, which have to agree."""

from __future__ import annotations

from typing import Any

from tidings.core.errors import Rejected
from tidings.core.model import json_body, operations


def _line_from(raw: object, now_ms: int, where: str) -> str:
    """Apply the rules in Python, which the compiled parser does not replace here."""
    return operations.line_from(raw, now_ms=now_ms, where=where)


def lines_from(body: bytes, content_type: str, *, now_ms: int) -> list[str]:
    """Return the lines of *body*, after both ways have given the same.

    Raises:
        Rejected: both reject it, for the same reason.
    """
    wanted = _outcome(body, content_type, now_ms=now_ms, line_of=_line_from)
    assert json_body.compiled_parser() is not None, "msgspec is not installed"
    assert _outcome(body, content_type, now_ms=now_ms) == wanted, body
    return json_body.lines_from(body, content_type, now_ms=now_ms)


def is_ordinary(body: bytes, content_type: str) -> bool:
    """Return True if the compiled parser accepts *body*."""
    read = json_body.reader_for(content_type)
    return json_body._ordinary_lines(body, read, 0) is not None


def _outcome(body: bytes, content_type: str, **options: Any) -> object:
    try:
        return json_body.lines_from(body, content_type, **options)
    except Rejected as error:
        return type(error), error.status, error.body()
