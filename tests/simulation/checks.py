"""Check the stores of a feed at rest against everything that was ever written to its log."""

from __future__ import annotations

from tests.fakes import MemoryState
from tests.simulation.model import Broken, Wanted
from tests.simulation.producer import Producer
from tests.simulation.stores import rows_of
from tests.simulation.world import World
from tidings.core import limits
from tidings.core.followers.follower import FOLLOWERS, STATE
from tidings.core.model.feeds import lane_of
from tidings.core.state.sums import MODULO, SumReader, digest

_ALLOWED_TO_APPEND = ("log.", "claims.")
_ALLOWED_TO_BOUNDED = ("state.find", "followers.checkpoints")  # they read the stored rows


def check_acknowledged(world: World, producer: Producer) -> None:
    """Promises 1 and 7: acknowledged operations are there, and appends waited for nothing else."""
    model = world.models[producer.feed]
    for marker, ids in producer.acknowledged.items():
        place = int(ids[0][8:18], 16)
        if place > model.frontier or model.of_marker.get(marker) != place:
            raise Broken(f"{marker} was acknowledged and is not in the log")
    if producer.name.startswith("beacon") and producer.unknown:
        raise Broken("when nothing fails a request was not acknowledged")
    allowed = _ALLOWED_TO_APPEND + (_ALLOWED_TO_BOUNDED if world.functions.keys else ())
    for kind, label in world.machine.touched:
        if kind == "ingest" and not label.startswith(allowed):
            raise Broken(f"appending waits for {label}")


def check_followers(world: World, feed: str) -> None:
    """Check that followers are at the end and their counts exact, also after repeated pages."""
    frontier, operations = world.models[feed].frontier, len(world.models[feed].ops)
    checkpoints = world.stores.followers.checkpoints(feed)
    for name in FOLLOWERS:
        if checkpoints.get(name, 0) != frontier:
            stands = checkpoints.get(name)
            raise Broken(f"{name} of {feed} is at {stands}, frontier is {frontier}")
    for lease in world.stores.followers.leases(feed):
        if lane_of(lease.name):
            continue  # one that was given up stays, and a new one begins at the others' place
        if lease.operations != operations:
            raise Broken(f"{lease.name} counts {lease.operations} of {operations}")
    received = world.stores.log.log_counter(feed).operations
    if received < operations:
        raise Broken(f"{received} were received, and {operations} are in the log")


def check_state(world: World, feed: str) -> None:
    """Promise 6: it is the fold of the log."""
    latest = world.models[feed].latest(Wanted())
    rows = {tuple(row.key.split("/", 1)): row for row in rows_of(world.stores.state, feed)}
    for key, op in latest.items():
        found = rows.pop(key, None)
        if found is None:
            if op.event != "delete":
                raise Broken(f"the state lost {op}")
        elif (found.page, found.slot) != op.at:
            raise Broken(f"the state of {key} is {found}, the log's last is {op}")
    if rows:
        raise Broken(f"the state has {sorted(rows)}, which the log never had")


def check_sums(sums: SumReader, state: MemoryState, feed: str) -> int:
    """Check the known sums against the rows of their page; return the number of known buckets.

    All are, but where a run died and nothing was posted since.
    """
    told = sums.read(feed)
    checkpoint = sums.followers.checkpoints(feed).get(STATE, 0)
    expected = [0] * limits.BUCKETS
    for row in rows_of(state, feed):
        if not row.deleted:
            expected[row.bucket] += digest(row.key, row.page, row.slot)
    known = [each for each in told.totals if each is not None]
    wrong = [
        bucket
        for bucket, total in enumerate(expected)
        if told.totals[bucket] not in (None, total % MODULO)
    ]
    if wrong or told.page != checkpoint:
        raise Broken(f"the sums of {feed} at {told.page} of {checkpoint} are wrong in {wrong}")
    return len(known)


def check_removed_parents(world: World, feed: str) -> None:
    """Check the known removed parents; without a stale setting, all must be known."""
    found = world.stores.removed_parents.read(feed, 0, world.models[feed].frontier)
    expected = world.models[feed].lefts()
    for removed in found:
        if removed.by_slot != expected.pop(removed.page, None):
            raise Broken(f"page {removed.page} did not leave {removed.by_slot}")
    doubts = world.faults.fired["stale_profile"] or world.faults.fired["lull"]
    if world.functions.leaves(feed) and expected and not doubts:
        raise Broken(f"what the pages {sorted(expected)} left is unknown")
