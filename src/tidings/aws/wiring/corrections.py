"""The composition root's part for corrections of a sync."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.runtime.clock import sleep_ms
from tidings.aws.wiring import adapters, ingest

if TYPE_CHECKING:
    from tidings.core.sync.apply import Corrector
    from tidings.http.endpoints.corrections import Corrections


@cache
def corrector() -> Corrector:
    from tidings.aws.wiring import chained
    from tidings.core.sync.apply import Corrector

    return Corrector(
        adapters.state(),
        ingest.filler(),
        sleep_ms,
        adapters.new_id,
        adapters.settings().feeds,
        adapters.tombstones(),
        chained.writable(),
    )


@cache
def corrections() -> Corrections:
    from tidings.aws.wiring import auth
    from tidings.http.endpoints.corrections import Corrections

    return Corrections(corrector(), auth.guard())
