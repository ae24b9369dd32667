"""Findings of the simulation and cases that it rarely meets, each in the fewest steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation.consumer import steps
from tests.simulation.faults import Faults
from tests.simulation.functions import FEED
from tests.simulation.parts import SOUND
from tests.simulation.process import Process
from tests.simulation.settings import TOMBSTONE_MS
from tests.simulation.world import HOUR_MS, World
from tidings.core.ingest.ingest import PostRequest
from tidings.core.model import cursors
from tidings.core.model.events import Event


class Scene:
    """A world without faults in which one thing happens after the other."""

    def __init__(self) -> None:
        random = Random(0)
        self.world = World(random, Faults(random, clear=True, without=frozenset()), SOUND)
        self.world.deployment.begin()
        self.log, self.state = self.world.stores.log, self.world.stores.state

    def pass_time(self, ms: int) -> None:
        self.world.sweeps = False
        self.world.scheduler.run(ms)

    def post(self, event: str, id: str) -> None:
        body = json.dumps({"event": event, "type": "t", "id": id, "data": {"of": f"{event} {id}"}})
        request = PostRequest(FEED, body.encode(), "application/json")
        self.world.ingest(lambda process: self._accept(process, request))
        self.pass_time(1_000)

    def trim(self) -> None:
        """Raise the floor over all pages, and delete them as DynamoDB does."""
        self.world.machine.start("sweep", 55, self.world.functions.sweep)
        self.pass_time(5_000)
        self.log.expire_some(self.world.scheduler.now_ms, lambda: True)

    def follow(self, cursor: str) -> tuple[list[str], str]:
        """Return the names and objects received after *cursor*, and the cursor after them."""
        told: list[str] = []
        for step in steps(self.world.catch_up(), FEED, cursors.parse(cursor)):
            told += [_brief(event) for event in step.events]
        return told, step.progress.cursor

    def _accept(self, process: Process, request: PostRequest) -> None:
        self.world.functions.services(process).ingester.accept(request)


def _brief(event: Event) -> str:
    return f"{event.name} {json.loads(event.data or '{}').get('id', '')}"


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.world.scheduler.close()


def test_now_is_the_end_of_a_log_that_is_all_trimmed(scene: Scene) -> None:
    """If no page is left, `now` sends no old event, and its cursor resumes without a reset."""
    scene.post("insert", "a")
    scene.pass_time(30 * HOUR_MS)
    scene.trim()

    told, cursor = scene.follow("now")
    scene.post("insert", "b")

    assert told == []
    assert scene.follow(cursor)[0] == ["insert b", "live "]


def test_a_copy_goes_on_only_while_deletions_are_remembered(scene: Scene) -> None:
    """A partial copy (since a time) was interrupted before it sent a deletion. Once that is
    forgotten, the copy cannot continue: it starts again with a reset.
    """
    scene.post("insert", "a")
    scene.post("delete", "a")
    since_s = scene.world.scheduler.now_ms // 1000 - 60
    halfway = cursors.Replication(since_s, page=2, bucket=0, tombstones=True).encode()

    before = scene.follow(halfway)[0]
    scene.pass_time(TOMBSTONE_MS + HOUR_MS)
    scene.state.expire(scene.world.scheduler.now_ms)

    assert before == ["delete a", "live "]
    assert scene.follow(halfway)[0] == ["reset ", "live "]
