"""The only module of the twin that reads the clock and creates ids."""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime

from tidings.aws.effects import now_ms as now_ms


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def iso(ms: int) -> str:
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def access_time(ms: int) -> str:
    """Return *ms* in the time format of API Gateway's events."""
    return moment(ms).strftime("%d/%b/%Y:%H:%M:%S +0000")


def new_uuid() -> str:
    return str(uuid.uuid4())  # noqa: TID251 the twin is an edge, like tidings.aws


def new_token(size_bytes: int) -> bytes:
    return secrets.token_bytes(size_bytes)
