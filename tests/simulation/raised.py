"""
A retention that is raised: tombstones from before live shorter than those that are written now.

Whoever comes back behind hours, from a place that is not in the log any more, must not take the
deletions that it missed for remembered by the settings of now.
"""

from __future__ import annotations

from typing import Final

from .settings import HOUR_MS
from .world import World

RATES: Final = {"deploy": 1.0, "expire": 0.8, "lull": 1.0}
LEADS_TO: Final = ("deleted object was told", "reset was told", "trimmed place was resumed from")
_RAISED_MS: Final = 24 * HOUR_MS
# Tombstones from before are gone behind each of them, later ones are not.
LULL_HOURS: Final[tuple[int, ...]] = (9, 27)


def begin(world: World) -> None:
    world.weather.add(RATES, LEADS_TO)
    world.deployment.ages_ms = (_RAISED_MS,)
