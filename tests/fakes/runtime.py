"""Effects that do nothing, for services that need only some."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tidings.core.effects import Runtime, discard_count, discard_trace, one_by_one

if TYPE_CHECKING:
    from tidings.core.effects import Clock


EVERY_FEED: Any = SimpleNamespace(check=lambda feed: None)  # the names of feeds, for a `Guard`


def runtime_of(clock: Clock, **effects: Any) -> Runtime:
    """Return a runtime that shows *clock*, never waits, and has *effects*."""
    nothing: Any = lambda *_: None  # noqa: E731
    made = Runtime(
        clock=clock,
        steady=clock,
        expiring=clock,
        sleep=nothing,
        new_id=nothing,
        count=discard_count,
        spread=one_by_one,
        trace=discard_trace,
        await_writer=nothing,
        page_ms=0,
        tombstone_ms=0,
    )
    return replace(made, **effects)
