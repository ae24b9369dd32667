"""Lanes of push that change their number while the feed is in use.

More clients than elsewhere, so that each lane has some; and a few changes of subscriptions a turn,
so that a lane is given up in several.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation.functions import FEED
from tests.simulation.sockets import SocketClient
from tests.simulation.world import World
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import State

RATES: Final = {
    "lanes_change": 0.7,  # at each occasion
    "stale_lanes": 0.2,  # a process believes in the number from before
    "crash_amid_move": 0.3,  # the connection is another lane's, its subscription still ours
}
# Clients stay connected, so that some can be moved, and most wake-ups arrive.
_SELDOM: Final = {
    **dict.fromkeys(("absent", "vanish", "throttle_long", "send_unanswered", "freeze"), 0.0),
    **{"hang_up": 0.01, "unsubscribe": 0.05, "impatient": 0.05, "wake_lost": 0.05},
}
LEADS_TO: Final = ("connection changed lanes", "a lane was given up")
BOUNDS: Final = {"CHANGES_MAX": 2, "LANE_DRAIN_MS": 20_000}
CHAOS_MS: Final = (240_000, 400_000)  # a crashed process holds a lane for a while
_CLIENTS: Final = 6
_LANES: Final = (1, 2, 3, 4)
_EVERY_MS: Final = (1_000, 10_000)


def begin(world: World) -> list[SocketClient]:
    """Add the clients."""
    world.faults.add(RATES | _SELDOM, LEADS_TO)
    world.scheduler.spawn("lanes", lambda: _operate(world))
    _record_moves(world)
    return [SocketClient(world, f"v{at}") for at in range(_CLIENTS)]


def _operate(world: World) -> None:
    functions, saw = world.functions, world.faults.saw
    while True:
        world.sleep_through_lull()
        world.scheduler.sleep(world.random.uniform(*_EVERY_MS))
        if not world.faults.strikes("lanes_change"):
            continue
        profile = functions.profiles.profile(FEED)
        functions.lanes_before = profile.push_lanes
        lanes = world.random.choice(_LANES)
        saw("a lane was given up", max(0, profile.push_lanes - lanes))
        functions.profiles.save(FEED, replace(profile, push_lanes=lanes))


def _record_moves(world: World) -> None:
    update = world.stores.connections.update

    def update_and_record(old: Connection, new: Connection) -> bool:
        done = update(old, new)
        if done and (old.state, new.state) == (State.LIVE, State.JOINING):
            world.faults.saw("connection changed lanes")
        return done

    world.stores.connections.update = update_and_record  # type: ignore[method-assign]
