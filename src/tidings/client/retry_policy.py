"""Decide which answers of the server are final and which are worth another attempt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidings.client.errors import AccessDenied, FellOff, Lost, Refused

if TYPE_CHECKING:
    import httpx

_TRY_AGAIN = frozenset({408, 425, 429})  # of the 4xx: too slow, too early, too many
_DENIED = frozenset({401, 403})
# A WebSocket has no status, so these codes say it.
_DENYING = frozenset({"wrong_password", "wrong_key", "outside_key", "key_ended"})
_TRY_AGAIN_CODES = frozenset({"unavailable", "too_many_requests"})  # the WebSocket counterpart
_FELL_OFF = "fell_off"
_MESSAGE_CHARS_MAX = 300  # the HTML page of a proxy does not help the user
_AFTER_S_MAX = 32.0  # limits the delay that a server can ask for


def is_final(status: int) -> bool:
    """Return True if a repeated request would get the same answer: for 3xx and most 4xx."""
    return 300 <= status < 500 and status not in _TRY_AGAIN


def error_of(status: int, body: bytes, *, after_s: float = 0) -> Refused | Lost:
    """Return the error for an answer of *status* with *body*."""
    code, message = _code_and_message(body)
    if is_final(status):
        return refusal(message or "no reason given", status=status, code=code)
    return Lost(
        f"the server answered {status}" + (f": {message}" if message else ""), after_s=after_s
    )


def error_of_answer(answer: httpx.Response) -> Refused | Lost:
    """Return the error for *answer*."""
    return error_of(answer.status_code, answer.read(), after_s=_retry_after_s(answer))


def error_of_code(message: str, code: str) -> Refused | Lost:
    """Return the error for a WebSocket message with *code*."""
    return Lost(message) if code in _TRY_AGAIN_CODES else refusal(message, code=code)


def refusal(message: str, *, status: int = 0, code: str = "") -> Refused:
    """Return the error for a final answer."""
    kind: type[Refused] = FellOff if code == _FELL_OFF else Refused
    if status in _DENIED or code in _DENYING:
        kind = AccessDenied
    return kind(message, status=status, code=code)


def raise_for_status(answer: httpx.Response) -> None:
    """
    Return if *answer* is an event stream; raise an error for any other answer.

    Raises:
        Refused: the answer is final, or a success that is not an event stream.
        Lost: the request is worth another attempt.
    """
    if answer.status_code == 200:
        kind = answer.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise Refused(f"the answer is {kind or 'without a type'}, not an event stream")
        return
    if answer.status_code < 300:
        raise Refused("the answer is no event stream", status=answer.status_code)
    raise error_of_answer(answer)


def _retry_after_s(answer: httpx.Response) -> float:
    """
    Return `Retry-After` in seconds. Return 0 without one, or for a date, which our servers do not
    send.
    """
    text = answer.headers.get("retry-after", "")
    return min(float(text), _AFTER_S_MAX) if text.isascii() and text.isdigit() else 0.0


def _code_and_message(body: bytes) -> tuple[str, str]:
    """Return code and message of an error body (PROTOCOL 4.6), or no code and the text as it is."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        return "", body.decode("utf-8", "replace").strip()[:_MESSAGE_CHARS_MAX]
    error = content.get("error", content) if isinstance(content, dict) else {}
    if not isinstance(error, dict):
        return "", str(error)[:_MESSAGE_CHARS_MAX]
    return str(error.get("code", "")), str(error.get("message", ""))[:_MESSAGE_CHARS_MAX]
