"""What load is asked for, and when each operation of it is due."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_EVENTS = ("insert", "update", "update", "update", "delete")
_FRAME_BYTES = 110  # of an operation without what pads it


@dataclass(frozen=True, slots=True)
class Place:
    """Where the feed is. On a deployed stage streams have an address of their own."""

    url: str
    stream_url: str = ""
    ws_url: str | None = None
    feed: str = "main"
    read_password: str = field(default="", repr=False)
    ingest_password: str = field(default="", repr=False)


RATE = 20.0  # what two cores bear that do all of it: at 50 the twin falls behind


@dataclass(frozen=True, slots=True)
class Plan:
    """
    *rate* operations a second in requests of *batch*, by *producers* in turn, for *duration_s*.

    *churn* consumers a minute leave and come back. The objects are of a type of this *run* alone.
    """

    run: str
    producers: int = 4
    rate: float = RATE
    batch: int = 1
    consumers: int = 8
    transports: tuple[str, ...] = ("ws", "sse")
    churn: float = 0.0
    duration_s: float = 60.0
    objects: int = 200
    size: int = 250
    seed: int = 1

    @property
    def type(self) -> str:
        return f"load-{self.run}"

    @property
    def requests(self) -> int:
        return max(1, math.ceil(self.rate * self.duration_s / self.batch))

    @property
    def total(self) -> int:
        """How many operations there will be."""
        return self.requests * self.batch

    def due_s(self, serial: int) -> float:
        """Seconds from the start at which operation *serial* is to be sent."""
        return serial // self.batch * self.batch / self.rate

    def shares(self, producer: int) -> Iterator[range]:
        """The serials of each request of one producer."""
        for request in range(producer, self.requests, self.producers):
            yield range(request * self.batch, (request + 1) * self.batch)

    def operation(self, serial: int) -> dict[str, Any]:
        """The same one each time it is asked for, so that what was heard can be compared."""
        chance = random.Random(self.seed << 40 | serial)
        pad = "x" * max(0, self.size - _FRAME_BYTES)
        return {
            "event": chance.choice(_EVENTS),
            "type": self.type,
            "id": f"o{chance.randrange(self.objects)}",
            "data": {"serial": serial, "pad": pad},
        }
