"""The clock and the id generator of the agent."""

from __future__ import annotations

import secrets
import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_key() -> str:
    """Return a unique Idempotency-Key."""
    return secrets.token_hex(16)
