"""The composition root's part for readers who come with a cursor."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.wiring import adapters

if TYPE_CHECKING:
    from tidings.core.catchup.catchup import CatchUp


@cache
def catch_up() -> CatchUp:
    from tidings.aws.wiring import archive, chained
    from tidings.core.catchup.catchup import CatchUp

    return CatchUp(
        adapters.reader(),
        adapters.state(),
        adapters.tombstones(),
        adapters.departure_reader(),
        archive.reader(),
        chained.losses(),
        chained.copied_until(),
    )
