"""
Frames that come when their sender is long dead, and another one has gone on behind it.

Clients stay on their connections, so that there is somebody to hear them. Their senders die of
the doubt, since who lives cuts the connection; and what is late is so by more than a lease, since
nobody sends anything newer before.
"""

from __future__ import annotations

from typing import Final

from .world import World

RATES: Final = {"send_unanswered": 0.05, "crash_in_doubt": 0.8}
LEADS_TO: Final = ("frame came late", "what came again was left out")
_LATE_MS: Final = (60_000, 150_000)
# Whatever would end a connection, or take its subscription away, before a late frame comes.
_NEVER: Final = (
    *("absent", "crash_amid_sends", "hang_up", "impatient", "lull"),
    *("throttle_long", "unsubscribe", "vanish"),
)


def begin(world: World) -> None:
    world.weather.add(RATES | dict.fromkeys(_NEVER, 0.0), LEADS_TO)
    world.late_frame_ms = _LATE_MS
