"""The host's facilities other than stores: time, ids, threads and counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.core.effects import Clock, Count, NewId, Sleep, Spread
    from tidings.core.tracing import Tell


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """
    The effects of a host.

    `await_writer` waits for a page that is not yet written although its number is taken. A host
    that writes both in one transaction raises `Unavailable` instead of waiting within one.
    """

    clock: Clock
    sleep: Sleep
    new_id: NewId
    count: Count
    spread: Spread
    trace: Tell
    await_writer: Sleep
