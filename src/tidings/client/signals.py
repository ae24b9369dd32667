"""End a command at Ctrl-C and SIGTERM without a traceback, also while it starts and ends."""

from __future__ import annotations

import os
import signal
from types import FrameType

_KINDS = (signal.SIGINT, signal.SIGTERM)
_IMPORT = "<frozen importlib._bootstrap>"


def end_at_once(number: int, frame: FrameType | None) -> None:
    """End the process with the exit code that shells use for the signal *number*."""
    os._exit(128 + number)


def end_at_signals() -> None:
    """Let Ctrl-C and SIGTERM end the process at once, unless they are ignored."""
    for number in _KINDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end_at_once)


def interrupt_at_signals() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt`, and SIGTERM end the process as usual."""
    if signal.getsignal(signal.SIGINT) == end_at_once:
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGTERM) == end_at_once:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Within an import, Python may print the exception and continue.
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            end_at_once(number, frame)
        frame = frame.f_back
    raise KeyboardInterrupt
