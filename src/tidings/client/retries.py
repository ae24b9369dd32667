"""Decide whether and when a request is sent again, and when to stop.

The delays between attempts are random: 1 to 2 seconds, then 2 to 4, up to 16 to 32.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidings.client.errors import AccessDenied, BackoffFailed, FellOff, Lost, Refused

if TYPE_CHECKING:
    import httpx

DELAY_S_MIN = 2.0  # bound of the first delay; short, as a restarted server is available again soon
DELAY_S_MAX = 32.0  # longer delays are noticed after an outage; shorter ones prolong the outage
ATTEMPTS_MAX = 8  # in two minutes, which is longer than a deployment and not too long for a user
PRINT_S = 5.0  # time after a signal to print an event; the output may be a pipe that is not read
T = TypeVar("T")
_TRY_AGAIN = frozenset({408, 425, 429})  # the 4xx codes that are not final
_DENIED = frozenset({401, 403})
# A WebSocket has no status, so these codes replace 401 and 403.
_DENYING = frozenset({"wrong_password", "wrong_key", "outside_key", "key_ended"})
# The codes in errors on a WebSocket that are not final.
_TRY_AGAIN_CODES = frozenset({"unavailable", "too_many_requests"})
_FELL_OFF = "fell_off"
_MESSAGE_CHARS_MAX = 300  # an answer may be the HTML page of a proxy, which does not help the user
_AFTER_S_MAX = 32.0  # the longest delay that a server can ask for


def stop_on_signals(stop: Callable[[], None], *, within_s: float | None = None) -> None:
    """Call *stop* on the first Ctrl-C, SIGTERM or SIGHUP; a second signal ends the process at once.

    The process ends *within_s* at the latest, even if it waits for a pipe that is not read. A
    SIGHUP that is ignored stays ignored, so that `nohup` has an effect.
    """
    received = list[int]()

    def on_signal(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        received.append(number)
        # Another kind of signal may have arrived already, and Python drops it if its handler is
        # replaced before it runs. So each kind keeps its handler until its own signal.
        if len(received) > 1:
            signal.raise_signal(number)
        if within_s is not None:
            end = threading.Timer(within_s, signal.raise_signal, (number,))
            end.daemon = True
            end.start()
        stop()

    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if kind != signal.SIGHUP or signal.getsignal(kind) != signal.SIG_IGN:
            signal.signal(kind, on_signal)


def log_lost(lost: Lost, delay_s: float) -> None:
    """Log a lost connection and the seconds until the next attempt.

    Without a configuration of `logging`, Python prints the message to stderr.
    """
    import logging  # the import takes milliseconds, which a short command saves

    logging.getLogger("tidings.client").warning("%s; trying again in %.0f s", lost.reason, delay_s)


class Closing:
    """A context manager that calls `close` at its end; subclasses implement `close`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Backoff:
    """Random delays, with a bound that starts at *min_s* and doubles up to *max_s*.

    *retries* limits the number of delays; None is unlimited. Half of each delay is random, so that
    clients that were disconnected together do not reconnect together.
    """

    def __init__(
        self,
        min_s: float = DELAY_S_MIN,
        max_s: float = DELAY_S_MAX,
        retries: int | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        if chance is None:  # the import takes milliseconds, which `tidings tail --help` saves
            from random import random

            chance = random
        if not 0 < min_s <= max_s:
            raise ValueError(f"must be 0 < min_timeout_s <= max_timeout_s, not {min_s}, {max_s}")
        self._min_s, self._max_s, self._retries = min_s, max_s, retries
        self._chance = chance
        self._attempts = 0

    def next_s(self) -> float:
        """Return the seconds until the next attempt; they grow until `reset`.

        Raises:
            BackoffFailed: the allowed number of retries is used up.
        """
        if self._retries is not None and self._attempts >= self._retries:
            raise BackoffFailed("Backoff failed")
        longest_s = min(self._max_s, self._min_s * 2.0 ** min(self._attempts, 64))
        self._attempts += 1
        return longest_s * (1.0 + self._chance()) / 2.0

    def reset(self) -> None:
        """Make the next delay short again, because something was received."""
        self._attempts = 0


def repeat(
    call: Callable[[], T],
    *,
    attempts_max: int | None = None,
    within_s: float | None = None,
    on_lost: Callable[[Lost, float], None],
    wait: Callable[[float], object],
) -> T:
    """Return the result of *call*; repeat it after each `Lost`, with the delays of `Backoff`.

    *on_lost* receives each failure and the seconds until the next attempt. *wait* sleeps for these
    seconds, and returns True if no further attempt should follow. No attempt begins later than
    *within_s* after the first one; None is unlimited.

    Raises:
        Lost: *attempts_max* attempts failed, *within_s* is over, or *wait* returned True.
    """
    backoff, begun_s = Backoff(), time.monotonic()
    for attempt in count(1):
        try:
            return call()
        except Lost as lost:
            if attempt == attempts_max:
                raise
            delay_s = max(backoff.next_s(), lost.after_s)
            if is_over(begun_s, delay_s, within_s):
                raise
            on_lost(lost, delay_s)
            if wait(delay_s):
                raise
    raise AssertionError("count() has no end")


def is_over(begun_s: float, delay_s: float, within_s: float | None) -> bool:
    """Return True if an attempt in *delay_s* is later than *within_s* after *begun_s*."""
    return within_s is not None and time.monotonic() + delay_s > begun_s + within_s


def error_of(status: int, body: bytes, url: str, *, after_s: float = 0) -> Refused | Lost:
    """Return the error for an answer of *status* with *body* from *url*, or from a proxy."""
    code, message = _code_and_message(body)
    if not code:  # not an error of a feed, so it may be one of the proxy
        message = f"{message}{via(url)}".removeprefix("; ")
    if 300 <= status < 500 and status not in _TRY_AGAIN:  # a repeated request gets the same answer
        return refusal(message or "no reason given", status=status, code=code)
    return Lost(
        f"the server answered {status}" + (f": {message}" if message else ""), after_s=after_s
    )


def via(url: str) -> str:
    """Return the end of an error that names the proxy for *url*; "" without a proxy."""
    from tidings.client.proxies import through  # the import takes 20 ms

    found = through(url)
    return found and f"; the request went{found}"


def error_of_answer(answer: httpx.Response) -> Refused | Lost:
    """Return the error for *answer*."""
    url, after_s = str(answer.request.url), retry_after_s(answer.headers)
    return error_of(answer.status_code, answer.read(), url, after_s=after_s)


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
    """Return if *answer* is an event stream; raise an error for any other answer.

    Raises:
        Refused: the answer is final, or a success that is not an event stream.
        Lost: the request is worth another attempt.
    """
    if answer.status_code == 200:
        kind = answer.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            rule = f"the answer is {kind or 'without a type'}, not an event stream"
            raise Refused(rule + via(str(answer.request.url)))
        return
    if answer.status_code < 300:
        raise Refused("the answer is not an event stream", status=answer.status_code)
    raise error_of_answer(answer)


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return `Retry-After` in seconds; 0 if it is missing or a date, which no feed sends."""
    text = headers.get("retry-after", "")
    return min(float(text), _AFTER_S_MAX) if text.isascii() and text.isdigit() else 0.0


def _code_and_message(body: bytes) -> tuple[str, str]:
    """Return the code and message of an error body (PROTOCOL 4.6).

    For other text, return "" and the text.
    """
    try:
        content: Any = json.loads(body)
    except ValueError:
        return "", body.decode("utf-8", "replace").strip()[:_MESSAGE_CHARS_MAX]
    error = content.get("error", content) if isinstance(content, dict) else {}
    if not isinstance(error, dict):
        return "", str(error)[:_MESSAGE_CHARS_MAX]
    return str(error.get("code", "")), str(error.get("message", ""))[:_MESSAGE_CHARS_MAX]
