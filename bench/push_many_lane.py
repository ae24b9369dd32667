"""The process that `bench.push_many` measures: one lane of push, on DynamoDB Local."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Sequence

from tidings.aws.dynamodb.connections import (
    DynamoDBConnections,
    DynamoDBInbox,
    DynamoDBSubscriptions,
)
from tidings.aws.gateway.ws_sender import ApiGatewaySockets
from tidings.aws.runtime.clock import sleep_ms
from tidings.aws.runtime.thread_pool import Threads
from tidings.core.followers.follower import Follower
from tidings.core.log.reader import Filler
from tidings.core.model.pages import Page
from tidings.core.settings.profiles import Profile
from tidings.core.state.removed_parents_reader import RemovedParentsReader
from tidings.core.websocket.lanes import Lanes
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.send import Delivery
from tidings.twin.store import tables

from tests.fakes import MemoryProfiles, MemoryRemovedParents, MemoryWaker

from . import engine
from .push_lane import CREDENTIALS

FEED, LANES = "main", 8
EVERY_S = 0.05  # between two looks
ENDS: dict[int, float] = {}  # by page, when its last message was answered


class _Timed(Pusher):
    """As the follower, with a note of when it was done with each page."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        count = super().handle(feed, pages)
        ended_s = time.time()
        ENDS.update((page.number, ended_s) for page in pages[:count])
        return count


def main(database: str, url: str, number: int) -> None:
    """Follow until the page that stdin names was sent; then tell of each when it was."""
    os.environ.update(CREDENTIALS)
    follower, pusher = _built(database, url, number)
    follower.run(FEED, pusher)
    last: list[int] = []
    threading.Thread(target=lambda: last.append(int(sys.stdin.readline())), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    began_s = time.process_time()
    while not last or last[0] not in ENDS:
        follower.run(FEED, pusher)
        time.sleep(EVERY_S)
    used = {"cpu_s": time.process_time() - began_s, "ends": ENDS}
    sys.stdout.write(json.dumps(used) + "\n")
    sys.stdout.flush()


def _built(database: str, url: str, number: int) -> tuple[Follower, Pusher]:
    running = engine.adapters(database)
    table = running.client, tables.name_of("connections")
    waker, profiles = MemoryWaker(), MemoryProfiles()
    assert profiles.save(FEED, Profile(push_lanes=LANES))
    sockets = ApiGatewaySockets(url, 10, None)
    delivery = Delivery(sockets, DynamoDBConnections(*table), sleep_ms, _count, sockets.exchange)
    pusher = _Timed(
        Lanes(DynamoDBInbox(*table), waker, _new_id, lambda feed: LANES, lambda feed: LANES),
        DynamoDBSubscriptions(*table),
        delivery,
        running.reader,
        Threads(16),
        RemovedParentsReader(MemoryRemovedParents(), running.followers),
        profiles,
        running.followers,
        lane=number,
    )
    filler = Filler(running.reader, engine.PAGE_MS)
    return Follower(running.followers, running.reader, filler, waker, sleep_ms, _new_id), pusher


def _new_id() -> str:
    return uuid.uuid4().hex


def _count(metric: str, value: int) -> None:
    """Nothing reads it."""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
