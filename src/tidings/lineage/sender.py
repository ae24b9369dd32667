"""
Events on their way to the receiver, in a thread of their own: whatever it does, the work goes on.

The thread imports the client, too, which takes some tenths of a second.
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

END_S = 5.0  # what waits at the end of the work for a receiver: it takes an event in milliseconds
REASON_CHARS_MAX = 300  # of what is logged: some libraries quote a page of HTML
_RETRIES = "urllib3.connectionpool"  # the logger in which each attempt of the client is a warning
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
    """What sends an event and returns at once. At the end it waits `END_S` for all to be sent."""
    sender = _Sender()
    sender.start()
    try:
        yield sender.send
    finally:
        sender.close()


class _Sender(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="lineage", daemon=True)  # one that hangs does not keep the process
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._failed = False

    def send(self, event: Event) -> None:
        """One that says only that a run goes on is left out while others wait."""
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
            except Exception as error:  # noqa: BLE001 of a library, or its configuration
                self._fail(f"{type(error).__name__}: {error}")
        if emitter is not None:
            emitter.close(END_S)

    def _is_of_others(self, record: logging.LogRecord) -> bool:
        return record.thread != self.ident

    def _fail(self, reason: str) -> None:
        """Logged once: who is away is away for each event."""
        if not self._failed:
            self._failed = True
            said = without_secrets(" ".join(reason.split()))[:REASON_CHARS_MAX]
            _log.warning("lineage is not taken, the work goes on: %s", said)


def without_secrets(text: str) -> str:
    """*text* without users of addresses, and without what looks like a password."""
    return _SECRET.sub(rf"\1{HIDDEN}", _USER.sub("", text))


def _emitter() -> Emitter:
    from tidings.lineage.emitter import Emitter

    return Emitter()
