"""Which answers of the server are final and which are worth another attempt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidings.client.errors import AccessDenied, FellOff, Lost, Refused

if TYPE_CHECKING:
    import httpx

_TRY_AGAIN = frozenset({408, 425, 429})  # of the 4xx: too slow, too early, too many
_DENIED = frozenset({401, 403})
# A WebSocket has no status to say it.
_DENYING = frozenset({"wrong_password", "wrong_key", "outside_key", "key_ended"})
_TRY_AGAIN_CODES = frozenset({"unavailable", "too_many_requests"})  # likewise
_FELL_OFF = "fell_off"
_MESSAGE_CHARS_MAX = 300  # a page of HTML from something in between helps nobody
_AFTER_S_MAX = 32.0  # a server that asks for more is asked again all the same


def is_final(status: int) -> bool:
    """Whether a repeated request would be answered the same: 3xx and most of 4xx."""
    return 300 <= status < 500 and status not in _TRY_AGAIN


def error_of(status: int, body: bytes, *, after_s: float = 0) -> Refused | Lost:
    """The error that an answer of *status* with *body* means."""
    code, message = _code_and_message(body)
    if is_final(status):
        return refusal(message or "no reason given", status=status, code=code)
    return Lost(
        f"the server answered {status}" + (f": {message}" if message else ""), after_s=after_s
    )


def error_of_answer(answer: httpx.Response) -> Refused | Lost:
    """The error that *answer* means."""
    return error_of(answer.status_code, answer.read(), after_s=_retry_after_s(answer))


def error_of_code(message: str, code: str) -> Refused | Lost:
    """The error that a message with *code* means, on a WebSocket."""
    return Lost(message) if code in _TRY_AGAIN_CODES else refusal(message, code=code)


def refusal(message: str, *, status: int = 0, code: str = "") -> Refused:
    """A final answer as the error it is."""
    kind: type[Refused] = FellOff if code == _FELL_OFF else Refused
    if status in _DENIED or code in _DENYING:
        kind = AccessDenied
    return kind(message, status=status, code=code)


def raise_for_status(answer: httpx.Response) -> None:
    """
    Raises:
        Refused: final, or a success that is no event stream.
        Lost: worth another attempt.
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
    """`Retry-After` in seconds, 0 without one (or with a date, which nobody here sends)."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), _AFTER_S_MAX) if text.isascii() and text.isdigit() else 0.0


def _code_and_message(body: bytes) -> tuple[str, str]:
    """Code and message of an error body (PROTOCOL 4.6), or the text as it is."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        return "", body.decode("utf-8", "replace").strip()[:_MESSAGE_CHARS_MAX]
    error = content.get("error", content) if isinstance(content, dict) else {}
    if not isinstance(error, dict):
        return "", str(error)[:_MESSAGE_CHARS_MAX]
    return str(error.get("code", "")), str(error.get("message", ""))[:_MESSAGE_CHARS_MAX]
