"""
Send events to the receiver in a separate thread, so that its failures do not stop the work.

The thread also imports the client, which takes some tenths of a second.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tidings.lineage.events import Event, State

if TYPE_CHECKING:
    from tidings.lineage.emitter import Emitter

END_S = 5.0  # limit for waiting at the end; a receiver takes milliseconds for an event
REASON_CHARS_MAX = 300  # of a logged reason: some libraries quote a page of HTML
_RETRIES = "urllib3.connectionpool"  # the client logs a warning for each attempt here
HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_SECRET = re.compile(
    r"(?i)\b((?:password|passwd|pwd|secret|token|api[-_]?key)[\"']?\s*[=:]\s*|(?:basic|bearer)\s+)"
    r"[^\s,;&]+"
)
_log = logging.getLogger("tidings.lineage")

Send = Callable[[Event], None]


@contextmanager
def sending() -> Iterator[Send]:
    """Yield a function that sends an event and returns at once; wait up to `END_S` at the end."""
    sender = _Sender()
    sender.start()
    try:
        yield sender.send
    finally:
        sender.close()


class _Sender(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="lineage", daemon=True)  # may hang without blocking exit
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._failed = False

    def send(self, event: Event) -> None:
        """Send *event*; skip it if it only reports that a run continues and others are queued."""
        if event.state is not State.RUNNING or self._events.empty():
            self._events.put(event)

    def close(self) -> None:
        self._events.put(None)
        self.join(END_S)
        if self.is_alive():
            self._fail(f"not all within {END_S:.0f} s")

    def run(self) -> None:
        retries = logging.getLogger(_RETRIES)
        retries.addFilter(self._is_of_others)
        try:
            self._emit_all()
        finally:
            retries.removeFilter(self._is_of_others)

    def _emit_all(self) -> None:
        emitter: Emitter | None = None
        while (event := self._events.get()) is not None:
            try:
                emitter = emitter or _emitter()
                emitter.emit(event)
            except Exception as error:  # noqa: BLE001 from a library, or its configuration
                self._fail(f"{type(error).__name__}: {error}")
        if emitter is not None:
            emitter.close(END_S)

    def _is_of_others(self, record: logging.LogRecord) -> bool:
        return record.thread != self.ident

    def _fail(self, reason: str) -> None:
        """Log the first failure only: later events usually fail for the same reason."""
        if not self._failed:
            self._failed = True
            said = without_secrets(" ".join(reason.split()))[:REASON_CHARS_MAX]
            _log.warning("lineage is not taken, the work goes on: %s", said)


def without_secrets(text: str) -> str:
    """Return *text* without users in addresses, and without possible passwords."""
    return _SECRET.sub(rf"\1{HIDDEN}", _USER.sub("", text))


def _emitter() -> Emitter:
    from tidings.lineage.emitter import Emitter

    return Emitter()
