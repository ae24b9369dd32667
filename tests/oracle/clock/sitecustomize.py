"""Moves the wall clock of a process by the seconds in the file `$ORACLE_CLOCK`; no other clock."""

from __future__ import annotations

import os
import time

_FILE = os.environ["ORACLE_CLOCK"]
_EVERY_S = 0.2  # the file is read this often
_time_ns = time.time_ns
_known = (-_EVERY_S, 0)  # the time of the last read, and its value


def _offset_s() -> int:
    global _known
    now_s = time.monotonic()
    if now_s - _known[0] >= _EVERY_S:
        with open(_FILE) as file:
            _known = (now_s, int(file.read()))
    return _known[1]


time.time_ns = lambda: _time_ns() + _offset_s() * 10**9
time.time = lambda: time.time_ns() / 1e9
