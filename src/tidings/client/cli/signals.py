"""Stop a process in order on Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call *stop* on the first Ctrl-C or SIGTERM. The second one ends the process at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop()

    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, on_signal)
