"""The clock and the ids of the twin, and the polling interval of its streams."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from datetime import UTC, datetime

from tidings.aws.effects import now_ms as now_ms
from tidings.aws.effects import steady_ms as steady_ms

# AWS polls a shard 4 times a second. On a laptop a developer waits for every wake-up, so the twin
# polls more often while functions run. Each poll costs the twin and DynamoDB some milliseconds.
IDLE_S = 0.25  # interval while no function runs, as on AWS; writes of other programs wait for it
BUSY_S = 0.05  # the interval while functions run
STIRRED_S = 1.0  # polling stays frequent for this time after a function began or ended


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def iso(ms: int) -> str:
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def access_time(ms: int) -> str:
    """Return *ms* in the time format of API Gateway's events."""
    return moment(ms).strftime("%d/%b/%Y:%H:%M:%S +0000")


def new_uuid() -> str:
    return str(uuid.uuid4())


def new_token(size_bytes: int) -> bytes:
    return secrets.token_bytes(size_bytes)


class PollInterval:
    """The pause between polls, which is shorter while functions run."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._stirred_at: float | None = None
        self._stirring = asyncio.Event()

    def stir(self) -> None:
        """Make the paused pollers poll at once, and all pollers more often for `STIRRED_S`."""
        self._stirred_at = asyncio.get_running_loop().time()
        self._stirring.set()
        self._stirring = asyncio.Event()

    async def pause(self) -> None:
        try:
            now = asyncio.get_running_loop().time()
            stirred = self._stirred_at is not None and now - self._stirred_at < STIRRED_S
            await asyncio.wait_for(self._stirring.wait(), BUSY_S if stirred else self._idle_s)
        except TimeoutError:
            return
