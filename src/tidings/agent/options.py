"""What the command line can say, how much the agent takes, and what keeps it from running."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

PORT = 8042  # oplog's, so that its producers keep theirs
QUEUED_EVENTS_MAX = 100_000  # oplog's default
QUEUED_BYTES_MAX = 512 * 1024 * 1024  # what a full queue of 5 KB operations takes
DRAIN_S = 10.0  # within the time a supervisor waits before it kills


class Problem(Exception):
    """The agent cannot start, or cannot go on; the text is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How much may be queued, operations in flight included."""

    events: int = QUEUED_EVENTS_MAX
    bytes: int = QUEUED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Options:
    """*password* is the target's; it is in no text made of this."""

    url: str
    feed: str
    host: str
    port: int
    folder: Path
    bound: Bound
    drain_s: float
    password: str = field(repr=False)
    allow_hosts: tuple[str, ...] = ()
