"""The composition root's part for corrections of a sync."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from . import app
from .clock import now_ms, sleep_ms

if TYPE_CHECKING:
    from tidings.core.correcting import Corrector


@cache
def corrector() -> Corrector:
    from tidings.core.correcting import Corrector

    from . import relay_app

    return Corrector(
        app.log(),
        app.state(),
        app.followers(),
        app.reader(),
        app.filler(),
        now_ms,
        sleep_ms,
        app.new_id,
        app.count,
        app.settings().feeds,
        app.settings().page_ms,
        app.tombstones(),
        relay_app.masters(),
    )
