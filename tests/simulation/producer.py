"""Producers: single operations and batches on the same few objects, with and without retries."""

from __future__ import annotations

import json
from typing import Any

from tests.simulation.functions import FEED
from tests.simulation.model import Broken
from tests.simulation.process import Process
from tests.simulation.world import World
from tidings.core.auth.guard import Credential
from tidings.core.errors import Unavailable
from tidings.core.ingest.ingest import PostRequest

TYPES, IDS, PARENTS = ("video", "user", "show"), 8, ("channel/1", "channel/2", "channel/3")
_ANSWER_MS = 12_000  # above the function's time limit: then the outcome is unknown
_ATTEMPTS = 4


class Producer:
    """Keeps what it was answered: the ids of each request, by the marker in its operations."""

    def __init__(self, world: World, name: str, ids: int = IDS, feed: str = FEED) -> None:
        self.world, self.name, self._ids, self.feed = world, name, ids, feed
        self.requests = 0
        self.acknowledged: dict[str, list[str]] = {}
        self.unknown: set[str] = set()

    def produce(self, until_ms: int, pause_ms: float) -> None:
        """Send requests, one after the other."""
        self.world.scheduler.sleep(self.world.random.uniform(0, 5_000))
        while self.world.scheduler.now_ms < until_ms:
            self.post(self._operations())
            self.world.scheduler.sleep(self.world.random.expovariate(1 / pause_ms))

    def start(self) -> None:
        """Send one request."""
        self.world.scheduler.spawn(self.name, self.post_one)

    def post_one(self) -> None:
        self.post(self._operations())

    def post(self, operations: list[dict[str, Any]]) -> None:
        """Post one request, with a key and its retries or without."""
        self.requests += 1
        marker = f"{self.name}.{self.requests}"
        for at, operation in enumerate(operations):
            operation["data"] = {"of": marker, "at": at}
        body = json.dumps(operations).encode()
        key = marker if self.world.random.random() < 0.5 else None
        before = self.world.acknowledged[self.feed]
        for _ in range(_ATTEMPTS if key else 1):
            if key and self.world.faults.strikes("twin_retry"):
                self._send(body, key, marker, len(operations), before)
            answers = self._send(body, key, marker, len(operations), before)
            if self.world.wait_for(answers.__len__, _ANSWER_MS, 100) or self.world.in_lull:
                break
        if marker not in self.acknowledged:
            self.unknown.add(marker)

    def _send(
        self, body: bytes, key: str | None, marker: str, count: int, before: int
    ) -> list[list[str]]:
        """Start an ingest; the list gets its answer, if one comes."""
        answers: list[list[str]] = []

        def accept(process: Process) -> None:
            if self.world.faults.strikes("slow_writer"):
                process.slow["log.put"] = self.world.random.uniform(0, 9_000)
            ids = self.world.functions.services(process).ingester.accept(
                PostRequest(self.feed, body, "application/json", key, self._shows())
            )
            self.world.machine.note(process.name, "acknowledged", marker, ids[0])
            self._acknowledged(marker, ids, count, before)
            if self.world.faults.strikes("answer_to_producer_lost"):
                raise Unavailable("the answer was lost on its way to the producer")
            answers.append(ids)

        self.world.ingest(accept)
        return answers

    def _acknowledged(self, marker: str, ids: list[str], count: int, before: int) -> None:
        if len(ids) != count:
            raise Broken(f"{marker}: {count} operations, {len(ids)} ids")
        self.world.models[self.feed].check_acknowledged(ids, marker, count)
        known = self.acknowledged.setdefault(marker, ids)
        if known != ids:
            raise Broken(f"{marker} was answered with {known} and with {ids}")
        page = int(ids[0][8:18], 16)
        if page <= before:
            raise Broken(f"{marker}: page {page}, but {before} was acknowledged before it began")
        self.world.acknowledged[self.feed] = max(page, self.world.acknowledged[self.feed])

    def _shows(self) -> Credential | None:
        """Return its credential."""
        return None

    def _operations(self) -> list[dict[str, Any]]:
        count = self.world.random.choice((1, 1, 1, 3, 12))
        return [self._operation() for _ in range(count)]

    def _operation(self) -> dict[str, Any]:
        random = self.world.random
        return {
            "event": random.choices(("insert", "update", "delete"), (3, 4, 2))[0],
            "type": random.choice(TYPES),
            "id": f"o{random.randrange(self._ids)}",
            "parents": random.sample(PARENTS, random.choice((0, 1, 1, 2))),
        }


def beacon(world: World, feed: str) -> Producer:
    """Return a producer of a last request, with operations for every consumer's filter."""
    producer = Producer(world, f"beacon.{feed}", feed=feed)
    operations = [
        {"event": "update", "type": name, "id": "beacon", "parents": list(PARENTS)}
        for name in TYPES
    ]
    world.scheduler.spawn(producer.name, lambda: producer.post(operations))
    return producer
