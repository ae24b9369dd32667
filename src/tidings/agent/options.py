"""Options of the agent, its limits, and the error that prevents it from running."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

PORT = 8042  # the port of oplog, so that its producers need no change
QUEUED_EVENTS_MAX = 100_000  # the default of oplog
QUEUED_BYTES_MAX = 512 * 1024 * 1024  # the size of a full queue of operations of 5 KB
DRAIN_S = 10.0  # shorter than the time after which a supervisor kills it


class Problem(Exception):
    """The agent cannot start or continue; the text is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Limits of the queue, including operations in flight."""

    events: int = QUEUED_EVENTS_MAX
    bytes: int = QUEUED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line. *password* is the target's; it is not part of the `repr`."""

    url: str
    feed: str
    host: str
    port: int
    folder: Path
    bound: Bound
    drain_s: float
    password: str = field(repr=False)
    allow_hosts: tuple[str, ...] = ()
