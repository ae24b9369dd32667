"""The only place of the agent that reads the clock and makes ids."""

from __future__ import annotations

import secrets
import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_key() -> str:
    """An Idempotency-Key that nobody else has."""
    return secrets.token_hex(16)
